"""Keys: who is known by which secret, and which secrets are no good. No server runs here."""

from __future__ import annotations

import pytest

from serving.keys import ADMIN, ANYONE, Keys, wrong_keys

ALICE, BOB, BOSS = "a" * 20, "b" * 20, "c" * 20
KEYS = Keys.of({"alice": ALICE, "bob": BOB}, (BOSS, "d" * 20))


@pytest.mark.parametrize(
    ("authorization", "tenant", "operator"),
    [
        (f"Bearer {ALICE}", "alice", False),
        (f"bearer  {BOB} ", "bob", False),
        (f"Bearer {BOSS}", ADMIN, True),
        (f"Bearer {'d' * 20}", ADMIN, True),
        (None, None, False),
        ("", None, False),
        ("Bearer", None, False),
        ("Bearer ", None, False),
        (ALICE, None, False),
        (f"Basic {ALICE}", None, False),
        (f"Bearer {ALICE[:-1]}", None, False),
        (f"Bearer {ALICE}{ALICE}", None, False),
        (f"Bearer {ALICE} {BOB}", None, False),
        ("Bearer schlüssel-\udcff", None, False),
        ("Bearer " + "x" * 100_000, None, False),
    ],
)
def test_a_key_names_its_tenant_and_nothing_else_does(
    authorization: str | None, tenant: str | None, operator: bool
) -> None:
    assert KEYS.tenant(authorization) == tenant
    assert (KEYS.operator(authorization) is not None) is operator


def test_without_tenants_everybody_is_anyone_and_the_admin_side_still_wants_its_key() -> None:
    keys = Keys.of({}, (BOSS,))
    assert keys.tenant(None) == keys.tenant("Bearer wrong") == ANYONE
    assert keys.tenant(f"Bearer {BOSS}") == ADMIN
    assert keys.guarded
    assert not keys.operator(None)
    assert not Keys.of({}, ()).guarded
    assert not Keys.of({}, ()).operator("Bearer ")


def test_an_operator_is_told_from_another_by_the_keys_place() -> None:
    keys = Keys.of({}, (BOSS, BOB, f"{ALICE}=="))  # as base64 may end
    assert [keys.operator(f"Bearer {key}") for key in (BOSS, BOB, f"{ALICE}==")] == [1, 2, 3]
    assert wrong_keys({}, (f"{ALICE}==",)) is None


def test_no_secret_is_kept_or_shown() -> None:
    assert not any(secret in repr(KEYS) + repr(vars(KEYS)) for secret in (ALICE, BOB, BOSS))


@pytest.mark.parametrize(
    ("tenants", "admin", "said"),
    [
        ({"alice": ALICE}, (), "PACELINE_ADMIN_KEYS"),
        ({ADMIN: ALICE}, (BOSS,), "another name"),
        ({"a b": ALICE}, (BOSS,), "the tenant 'a b'"),
        ({"alice": "short"}, (BOSS,), "of 'alice' with 5 characters"),
        ({"alice": ALICE}, ("with a space in it!",), "without spaces"),
        ({"alice": ALICE, "bob": ALICE}, (BOSS,), "the same key twice"),
        ({"alice": BOSS}, (BOSS,), "the same key twice"),
        ({}, (BOSS, f"alice={ALICE}"), "of the form NAME=KEY"),
        ({f"t{n}": f"{n:020d}" for n in range(257)}, (BOSS,), "256 at most"),
    ],
)
def test_keys_that_would_not_keep_anybody_out_are_refused_and_not_shown(
    tenants: dict[str, str], admin: tuple[str, ...], said: str
) -> None:
    wrong = wrong_keys(tenants, admin)
    assert wrong is not None
    assert said in wrong
    assert not any(secret in wrong for secret in (*tenants.values(), *admin))


def test_good_keys_and_none_at_all_are_right() -> None:
    assert wrong_keys({"alice": ALICE, "bob": BOB}, (BOSS,)) is None
    assert wrong_keys({}, (BOSS,)) is None
    assert wrong_keys({}, ()) is None
