"""The store on each database that MLflow is run on, through a real server: SQLite, PostgreSQL."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.promotion import promote, rollback
from registry.remote import champion, download
from registry.store import Store
from speculation.records import Finding, Phase, Verdict
from tests.registry import hosts
from tests.registry.conftest import manifest_of, pair_files, registered

pytestmark = pytest.mark.slow  # a server on PostgreSQL starts; dozens of processes

ROOT = Path(__file__).parents[2]


def played(what: str, url: str, pairing: str) -> list[dict[str, Any]]:
    """What `tests.registry.hosts` tells."""
    argv = [sys.executable, "-m", "tests.registry.hosts", what, url, pairing]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_pairs_life_from_registration_to_rollback(
    any_server: str, target: Path, tmp_path: Path
) -> None:
    store = Store(any_server, locks=tmp_path / "locks")
    for seed in range(2):
        registered(store, target, tmp_path / str(seed), seed=seed, pairing="life")
    assert promote(store, "life", 1, expect=None).ok
    assert promote(store, "life", 2, expect=1).ok
    now = champion(any_server, "life")
    assert now is not None
    assert (now.version, now.unfit) == (2, "")
    assert (download(now, tmp_path / "served") / "draft" / "model.safetensors").is_file()
    assert rollback(store, "life", reason="dead draft").ok
    state = store.describe("life")
    assert {alias: p.version for p in state.pairs for alias in p.aliases} == {
        "champion": 1,
        "previous": 2,
    }
    assert state.warnings == ()
    page = store.client.get_model_version("life", "2").description or ""
    assert page.startswith("> Rolled back: dead draft. Champion from ")
    overview = store.client.get_registered_model("life").description or ""
    for markdown, pictures in ((page, 2), (overview, 1)):  # as a browser asks for them
        addresses = re.findall(r"!\[[^]]*\]\(([^)]+)\)", markdown)
        assert len(addresses) == pictures
        for address in addresses:
            answer = httpx.get(f"{any_server}/{address}").raise_for_status()
            assert answer.headers["content-type"] in ("image/png", "image/svg+xml")
    assert "v2 head, rolled back" in answer.text


def test_a_story_of_any_length_is_stored(any_server: str, target: Path, tmp_path: Path) -> None:
    """PostgreSQL's column of a description holds 5,000 characters, SQLite's any number."""
    store = Store(any_server, locks=tmp_path / "locks")
    files = pair_files(tmp_path / "pair", "ngram")
    findings = [
        Finding(f"slice {number}", Phase.PASS, "it is as good as it was before " * 5, None, 0.1)
        for number in range(100)
    ]
    pair = store.register_pair(
        "long",
        manifest_of(target, files, "ngram"),
        files,
        report={"rows": []},
        verdict=Verdict.of(findings),
        description="Made because. " * 1000,
    )
    assert promote(store, "long", pair.version, expect=None).ok
    page = store.client.get_model_version("long", "1").description or ""
    assert len(page) <= 5000
    assert "story.md)" in page
    whole = Path(store.client.download_artifacts(pair.run_id, "story.md", str(tmp_path)))
    assert "slice 99" in whole.read_text()


def test_of_hosts_that_promote_at_once_one_wins_and_the_others_say_so(
    any_server: str, target: Path, tmp_path: Path
) -> None:
    store = Store(any_server, locks=tmp_path / "locks")
    for seed in range(hosts.HOSTS + 1):
        registered(store, target, tmp_path / str(seed), seed=seed, pairing="hosts")
    served: list[int] = []
    for told in played("race", any_server, "hosts"):
        outcomes = told["outcomes"]
        expected = ["overtaken"] * (hosts.HOSTS - 1) + ["promoted"]
        assert sorted(outcomes.values()) == expected, told["statements"]
        (winner,) = [int(version) for version, out in outcomes.items() if out == "promoted"]
        served.append(winner)
        assert told["aliases"]["champion"] == winner
        assert told["aliases"].get("previous") == told["before"]
        assert told["journal"] == served
        assert told["finished"]
        assert told["warnings"] == []
    assert len(served) == hosts.ROUNDS


def test_killed_before_or_after_any_write_the_next_look_heals(
    any_server: str, target: Path, tmp_path: Path
) -> None:
    store = Store(any_server, locks=tmp_path / "locks")
    for seed in range(2):
        registered(store, target, tmp_path / str(seed), seed=seed, pairing="crash")
    assert promote(store, "crash", 1, expect=None).ok
    rounds = played("crash", any_server, "crash")
    for told in rounds:
        now, wanted = told["before"], told["wanted"]
        killed, healed = told["killed"], told["healed"]
        decided = killed["journal"][-1] == wanted
        assert killed["aliases"]["champion"] in ({now, wanted} if decided else {now})
        assert healed["aliases"]["champion"] == (wanted if decided else now)
        assert healed["finished"]
        assert healed["warnings"] == []
        assert told["again"]
        assert told["last"]["aliases"] == {"champion": wanted, "previous": now}
        assert told["last"]["journal"][-2:] == [now, wanted]  # once, killed or not
    assert rounds[-1]["through"] == "promoted"
    assert all(told["through"] is None for told in rounds[:-1])
    assert len(rounds) > 15
