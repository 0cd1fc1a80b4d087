"""The engine emits what the target alone would, whatever drafts, however many run at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED
from speculation.drafters import Ask, Drafter, NoDrafter, Proposal, load_drafter
from speculation.engine import Engine
from speculation.records import Counts, pool
from speculation.requests import RequestError
from speculation.sampling import Sampling
from speculation.sequence import Event, Request
from speculation.target import Target, load_target
from tests.toys import decode, events_of, generated

MAX_LEN = 160
TOKENS = 30


def some_prompts(count: int = 7) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 40, (count,), generator=generator).tolist()
    return [tuple(torch.randint(4, 290, (n,), generator=generator).tolist()) for n in lengths]


@pytest.fixture(scope="module")
def plain(folders: tuple[Path, Path]) -> dict[str, list[int]]:
    """Transformers' own greedy decoding."""
    return generated(folders[0], some_prompts(), TOKENS)


def build(target: Target, drafter: Drafter, *, slots: int = 3, draft_len: int = 4) -> Engine:
    return Engine(
        target, {"x": drafter}, default="x", draft_len=draft_len, slots=slots, max_len=MAX_LEN
    )


@pytest.mark.parametrize("kind", ["none", "ngram", "head"])
def test_greedy_output_is_the_targets_own_at_every_k(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]], kind: str
) -> None:
    """Seventeen K, side by side in one ragged batch."""
    drafter = load_drafter(folders[1] if kind == "head" else kind, target, rows=5, max_len=MAX_LEN)
    prompts = some_prompts()
    requests = [
        Request(str(k), prompts[k % len(prompts)], TOKENS, draft_len=k)
        for k in range(MOST_DRAFTED + 1)
    ]
    tokens, last = decode(build(target, drafter, slots=5), requests)
    for k in range(MOST_DRAFTED + 1):
        assert tokens[str(k)] == plain[str(k % len(prompts))]
        counts = last[str(k)].counts
        assert counts is not None
        assert counts.drafted == 0 or (k > 0 and kind != "none")
    drafted = sum(event.counts.drafted for event in last.values() if event.counts)
    assert (drafted > 40) == (kind != "none")


class Scripted(NoDrafter):
    """Drafts what it is told: the oracle drafts the target's own output, others do not."""

    def __init__(self, outputs: dict[tuple[int, ...], list[int]], shift: int) -> None:
        self.outputs, self.shift = outputs, shift

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        found = []
        for ask in asks:
            prompt = next(p for p in self.outputs if tuple(ask.context[: len(p)]) == p)
            done = len(ask.context) - len(prompt)
            coming = self.outputs[prompt][done : done + ask.length]
            found.append([(token + self.shift) % 300 for token in coming])
        return Proposal(found, None)


@pytest.mark.parametrize(("shift", "kept"), [(0, True), (1, False)])
def test_an_oracle_gives_k_plus_one_a_round_and_a_hostile_draft_exactly_one(
    target: Target, plain: dict[str, list[int]], shift: int, kept: bool
) -> None:
    outputs = {p: plain[str(i)] for i, p in enumerate(some_prompts())}
    engine = build(target, Scripted(outputs, shift), draft_len=4)
    tokens, last = decode(engine, [Request(str(i), p, 26) for i, p in enumerate(some_prompts())])
    for key, event in last.items():
        assert tokens[key] == plain[key][:26]
        counts = event.counts
        assert counts is not None
        # One token from prefill; 25 left: five rounds of K + 1, or 24 rounds and a last plain one.
        wanted = Counts(5, 1, 20, 26, (5,) * 4, (5,) * 4)
        if not kept:
            drafted = sum(min(4, 25 - done - 1) for done in range(24))
            wanted = Counts(24, 2, drafted, 26, (24, 0, 0, 0), (0, 0, 0, 0))
        assert counts.rounds == wanted.rounds
        assert counts.plain_forwards == wanted.plain_forwards
        assert counts.drafted == wanted.drafted
        assert counts.emitted == counts.accepted + counts.forwards == 26
        assert counts.accepted_per_position[:4] == wanted.accepted_per_position
        assert counts.judged_per_position[:1] == wanted.judged_per_position[:1]


@pytest.mark.parametrize("place", range(6))
def test_nothing_after_a_stop_token_is_emitted_or_counted(
    target: Target, plain: dict[str, list[int]], place: int
) -> None:
    prompt = some_prompts()[0]
    output = plain["0"]
    stop = output[place]
    end = output.index(stop)
    engine = build(target, Scripted({prompt: output}, 0), draft_len=4)
    tokens, last = decode(engine, [Request("0", prompt, TOKENS, stop_ids=frozenset({stop}))])
    assert tokens["0"] == output[: end + 1]
    counts = last["0"].counts
    assert counts is not None
    assert last["0"].outcome == "stop"
    assert counts.emitted == end + 1
    assert counts.drafted == counts.judged == counts.accepted
    assert counts.accepted <= end


@pytest.mark.parametrize("string_first", [True, False])
def test_of_a_stop_token_and_a_stop_string_in_one_block_the_first_ends_it(
    target: Target, plain: dict[str, list[int]], string_first: bool
) -> None:
    """And the log-probabilities are those of the tokens that are left."""
    prompt, output = some_prompts()[0], plain["0"]
    # Both lie in the block after the prompt's own token.
    places = [n for n in range(1, 9) if output[n] not in output[:n]]
    early, late = places[0], places[1]
    stop, string = (late, early) if string_first else (early, late)

    def ends(ids: Sequence[int]) -> int | None:
        return string + 1 if len(ids) > string else None

    engine = build(target, Scripted({prompt: output}, 0), draft_len=8)
    request = Request(
        "0", prompt, TOKENS, stop_ids=frozenset({output[stop]}), ends=ends, logprobs=1
    )
    events = events_of(engine, [request])["0"]
    assert [len(event.token_ids) for event in events] == [1, early]
    assert [t for event in events for t in event.token_ids] == output[: early + 1]
    assert [each.top[0][0] for e in events for each in e.logprobs] == output[: early + 1]
    assert events[-1].outcome == "stop"


def test_stop_beats_length_at_the_same_token(target: Target, plain: dict[str, list[int]]) -> None:
    prompt, output = some_prompts()[0], plain["0"]
    place = next(i for i in range(2, TOKENS) if output[i] not in output[:i])
    request = Request("0", prompt, place + 1, stop_ids=frozenset({output[place]}))
    _, last = decode(build(target, NoDrafter()), [request])
    assert last["0"].outcome == "stop"


def test_the_callers_end_and_the_budget_cut_at_every_index_of_a_block(
    target: Target, plain: dict[str, list[int]]
) -> None:
    """An oracle drafts eight: whichever of them the request ends at, nothing behind it counts."""
    prompt, output = some_prompts()[0], plain["0"]

    def stops_at(count: int) -> Request:
        def ends(ids: Sequence[int]) -> int | None:
            return count if len(ids) >= count else None

        return Request(f"stop {count}", prompt, TOKENS, ends=ends, draft_len=8)

    counts = range(1, 12)
    requests = [stops_at(count) for count in counts]
    requests += [Request(f"length {count}", prompt, count, draft_len=8) for count in counts]
    tokens, last = decode(build(target, Scripted({prompt: output}, 0)), requests)
    for count in counts:
        for outcome in ("stop", "length"):
            key = f"{outcome} {count}"
            assert tokens[key] == output[:count]
            assert last[key].outcome == outcome
            told = last[key].counts
            assert told is not None
            assert told.drafted == told.judged == told.accepted
            # One came from the prompt; a round adds one to what it accepts, where it gets there.
            assert told.emitted == count
            assert told.accepted + told.rounds + told.plain_forwards - count in (0, 1)


def test_a_seeded_request_repeats_itself_whatever_its_batch_mates(
    folders: tuple[Path, Path], target: Target
) -> None:
    prompts = some_prompts()
    drafter = load_drafter(folders[1], target, rows=4, max_len=MAX_LEN)
    requests = [
        Request(str(i), p, 20, Sampling(temperature=0.8, top_p=0.9, seed=i))
        for i, p in enumerate(prompts)
    ]
    together, _ = decode(build(target, drafter, slots=4), requests)
    again, _ = decode(build(target, drafter, slots=2), requests[::-1])  # other mates and order
    assert again == together
    alone, _ = decode(build(target, drafter, slots=1), requests[:1])
    assert alone["0"] == together["0"]


def test_logprobs_are_the_targets_own(target: Target, plain: dict[str, list[int]]) -> None:
    prompt, output = some_prompts()[0], plain["0"]
    engine = build(target, Scripted({prompt: output}, 0))
    engine.submit(Request("0", prompt, 10, logprobs=2))
    found = [
        pair
        for event in iter(lambda: engine.step() if not engine.idle else None, None)
        for e in event
        for pair in zip(e.token_ids, e.logprobs, strict=True)
    ]
    with torch.no_grad():
        logits = target.model(torch.tensor([[*prompt, *output[:10]]])).logits[0]
    wanted = logits[len(prompt) - 1 : -1].log_softmax(-1)
    assert len(found) == 10
    for row, (token, logprobs) in zip(wanted, found, strict=True):
        # float32 sums in another order
        assert logprobs.logprob == pytest.approx(float(row[token]), abs=1e-3)
        assert logprobs.top[0][0] == token
        assert len(logprobs.top) == 2


def test_a_cancelled_request_frees_its_row_and_leaves_the_others_right(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]]
) -> None:
    drafter = load_drafter(folders[1], target, rows=3, max_len=MAX_LEN)
    engine = build(target, drafter)
    tokens: dict[str, list[int]] = {}
    ended = {}
    for i, prompt in enumerate(some_prompts()):
        engine.submit(Request(str(i), prompt, TOKENS))
    steps = 0
    while not engine.idle:
        if steps in (4, 9):
            engine.cancel("0" if steps == 4 else "3")
        for event in engine.step():
            tokens.setdefault(event.id, []).extend(event.token_ids)
            if event.outcome:
                ended[event.id] = event.outcome
        steps += 1
    assert ended["0"] == "cancelled"
    for key, output in plain.items():
        assert tokens.get(key, []) == output[: len(tokens.get(key, []))]
        assert ended[key] == "cancelled" or len(tokens[key]) == TOKENS


def test_two_drafters_share_a_batch(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]]
) -> None:
    drafters: dict[str, Drafter] = {
        name: load_drafter(draft, target, rows=4, max_len=MAX_LEN)
        for name, draft in (("head", str(folders[1])), ("ngram", "ngram"), ("none", "none"))
    }
    engine = Engine(target, drafters, default="none", slots=4, max_len=MAX_LEN)
    requests = [
        Request(str(i), p, TOKENS, drafter=["head", "ngram", "none"][i % 3], draft_len=i % 4)
        for i, p in enumerate(some_prompts())
    ]
    assert decode(engine, requests)[0] == plain


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("a", (), 5), "1 or more"),
        (Request("a", (5,), 0), "1 or more"),
        (Request("a", (5,) * 150, 50), "exceed the context of 160"),
        (Request("a", (5_000,), 5), "token id 5000"),
        (Request("a", (5,), 5, drafter="y"), "wanted one of"),
        (Request("a", (5,), 5, draft_len=MOST_DRAFTED + 1), "wanted 0 to 16"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_reason(
    target: Target, request_: Request, words: str
) -> None:
    engine = build(target, NoDrafter())
    with pytest.raises(ValueError, match=words):
        engine.submit(request_)
    assert engine.idle


@pytest.mark.parametrize("kind", ["ngram", "head"])
def test_adapted_k_changes_no_output_and_a_hopeless_draft_is_soon_left_alone(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]], kind: str
) -> None:
    """The toy head is random: nothing is accepted, so drafting never pays, whatever it costs."""
    drafter = load_drafter(folders[1] if kind == "head" else kind, target, rows=3, max_len=MAX_LEN)
    engine = Engine(target, {"x": drafter}, default="x", adaptive=True, slots=3, max_len=MAX_LEN)
    requests = [Request(str(i), p, TOKENS) for i, p in enumerate(some_prompts())]
    late: list[Event] = []
    for turn in range(6 if kind == "head" else 2):
        again = [replace(request, id=f"{turn}/{request.id}") for request in requests]
        tokens, last = decode(engine, again)
        assert {key.split("/")[1]: found for key, found in tokens.items()} == plain
        late = list(last.values())
    if kind == "head":
        counts = pool([event.counts for event in late if event.counts])
        assert counts.rounds < 0.1 * counts.forwards


def test_a_fixed_k_is_kept_beside_adapted_ones(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]]
) -> None:
    drafter = load_drafter(folders[1], target, rows=3, max_len=MAX_LEN)
    engine = Engine(target, {"x": drafter}, default="x", adaptive=True, slots=3, max_len=MAX_LEN)
    prompts = some_prompts()
    requests = [
        Request(str(i), p, TOKENS, draft_len=3 if i % 2 else None) for i, p in enumerate(prompts)
    ]
    tokens, last = decode(engine, requests)
    assert tokens == plain
    for number in range(1, len(prompts), 2):
        counts = last[str(number)].counts
        assert counts is not None
        assert counts.plain_forwards <= 2  # the prompt, and a last token with no budget to draft


def test_a_first_token_is_told_before_its_draft_reads_the_prompt_and_no_row_starves(
    target: Target, plain: dict[str, list[int]]
) -> None:
    prompts = some_prompts()
    asked: list[int] = []

    class Noted(NoDrafter):
        def propose(self, asks: Sequence[Ask]) -> Proposal:
            asked.append(len(asks))
            return super().propose(asks)

    engine = build(target, Noted(), slots=3)
    engine.submit(Request("0", prompts[0], TOKENS))
    first = engine.step()
    assert [event.id for event in first] == ["0"]
    assert asked == []
    for number in (1, 2):
        engine.submit(Request(str(number), prompts[number], TOKENS))
    emitted = [sum(e.id == "0" for e in engine.step()) for _ in range(6)]
    assert sum(emitted) == 4  # a round between any two prompts, and each after them


def test_a_target_that_gives_no_number_ends_the_requests_it_does_it_to_and_no_other(
    target: Target, plain: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = some_prompts()
    right = Target.logits
    rounds = 0

    def wrong(self: Target, hidden: Tensor) -> Tensor:
        nonlocal rounds
        logits = right(self, hidden)
        if hidden.shape[0] > 1:
            rounds += 1
            if rounds == 3:
                logits[1, 0, 5] = float("nan")
        return logits

    monkeypatch.setattr(Target, "logits", wrong)
    engine = build(target, NoDrafter(), slots=2)
    tokens, last = decode(engine, [Request(str(i), prompts[i], TOKENS) for i in range(4)])
    outcomes = {key: event.outcome for key, event in last.items()}
    assert sorted(map(str, outcomes.values())) == ["error", "length", "length", "length"]
    for key, outcome in outcomes.items():
        assert tokens[key] == (
            plain[key] if outcome == "length" else plain[key][: len(tokens[key])]
        )


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_round_that_meets_no_number_keeps_and_counts_what_came_before(
    target: Target, plain: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """As plain decoding would: it gives these tokens, and then meets the same."""
    prompt, output = some_prompts()[0], plain["0"]
    right = Target.logits
    calls = 0

    def wrong(self: Target, hidden: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        logits = right(self, hidden)
        if calls == 3:  # the prompt, a round, and another
            logits[0, place] = float("nan")
        return logits

    monkeypatch.setattr(Target, "logits", wrong)
    engine = build(target, Scripted({prompt: output}, 0), draft_len=4)
    tokens, last = decode(engine, [Request("0", prompt, TOKENS)])
    counts = last["0"].counts
    assert counts is not None
    assert last["0"].outcome == "error"
    assert tokens["0"] == output[: 6 + place]
    assert counts.emitted == 6 + place
    assert counts.accepted == counts.judged == counts.drafted == 4 + place
    # The forward was spent; without a token that it judged it was a plain one.
    assert (counts.rounds, counts.plain_forwards) == ((2, 1) if place else (1, 2))


@pytest.mark.parametrize("more", [{}, {"temperature": 1.0}, {"temperature": 1.0, "seed": 3}])
def test_a_request_for_which_the_target_has_nothing_left_ends_and_no_other(
    target: Target,
    plain: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
) -> None:
    prompts = some_prompts()
    right = Target.logits

    def low(self: Target, hidden: Tensor) -> Tensor:
        logits = right(self, hidden)
        logits[..., 9] = float("-inf")
        return logits

    assert 9 not in plain["0"]
    monkeypatch.setattr(Target, "logits", low)
    only = Sampling(allowed=frozenset({9}), **more)
    late = Sampling(logit_bias=((9, 1.0),), banned=frozenset({5}), **more)
    engine = build(target, NoDrafter(), slots=3)
    requests = [Request("0", prompts[0], 8), Request("only", prompts[1], 8, only)]
    tokens, last = decode(engine, [*requests, Request("late", prompts[2], 8, late)])
    assert {key: event.outcome for key, event in last.items()} == {
        "0": "length",
        "only": "error",
        "late": "length",
    }
    assert tokens["0"] == plain["0"][:8]
    assert tokens["only"] == []


def test_a_prompt_that_gives_no_number_ends_at_once(
    target: Target, plain: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = some_prompts()
    right = Target.logits
    calls = 0

    def wrong(self: Target, hidden: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return right(self, hidden) * (float("inf") if calls == 1 else 1.0)

    monkeypatch.setattr(Target, "logits", wrong)
    engine = build(target, NoDrafter(), slots=2)
    tokens, last = decode(engine, [Request(str(i), prompts[i], TOKENS) for i in range(2)])
    assert [e.counts.plain_forwards for e in last.values() if e.counts] == [1, TOKENS]
    assert last["0"].outcome == "error"
    assert tokens["0"] == []
    assert tokens["1"] == plain["1"]


class Says(NoDrafter):
    """Drafts one token, always the same."""

    def __init__(self, token: int) -> None:
        self.token = token

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        for ask in asks:
            assert isinstance(ask.context, list)
            ask.context.append(self.token)  # what it is handed is its own
        return Proposal([[self.token] * ask.length for ask in asks], None)


def test_a_drafted_token_that_breaks_the_target_ends_no_request(folders: tuple[Path, Path]) -> None:
    target = load_target(folders[0])
    prompt = some_prompts()[0]
    wanted, _ = decode(build(target, NoDrafter()), [Request("0", prompt, 12)])
    poison = next(t for t in range(4, 290) if t not in prompt and t not in wanted["0"])
    weight = target.model.get_input_embeddings().weight  # type: ignore[operator]  # transformers' own
    head = target.model.get_output_embeddings()  # type: ignore[operator]  # as above
    head.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)  # untied
    weight[poison] = float("nan")
    tokens, last = decode(build(target, Says(poison)), [Request("0", prompt, 12)])
    assert (tokens, last["0"].outcome) == (wanted, "length")
    _, last = decode(build(target, NoDrafter()), [Request("0", (*prompt[:3], poison, 9, 9), 12)])
    assert last["0"].outcome == "error"  # in the middle of a prompt it is no draft's fault


def test_a_replaced_token_that_ends_the_request_censors_what_was_drafted_behind_it(
    target: Target, plain: dict[str, list[int]]
) -> None:
    prompt, output = some_prompts()[0], plain["0"]
    stop = output[1]
    hostile = Scripted({prompt: output}, 1)
    request = Request("0", prompt, TOKENS, stop_ids=frozenset({stop}))
    _, last = decode(build(target, hostile, draft_len=4), [request])
    counts = last["0"].counts
    assert counts is not None
    if output[0] != stop:
        assert (counts.rounds, counts.drafted, counts.judged, counts.accepted) == (1, 1, 1, 0)


def test_an_unknown_id_that_was_cancelled_is_forgotten(target: Target) -> None:
    engine = build(target, NoDrafter())
    engine.cancel("0")
    _, last = decode(engine, [Request("0", some_prompts()[0], 3)])
    assert last["0"].outcome == "length"


@pytest.mark.parametrize("kind", ["none", "head"])
def test_a_long_prompt_is_read_in_chunks_beside_one_that_decodes(
    folders: tuple[Path, Path], target: Target, kind: str
) -> None:
    generator = torch.Generator().manual_seed(5)
    long = tuple(torch.randint(4, 290, (600,), generator=generator).tolist())
    wanted = generated(folders[0], [long], 20)["0"]
    drafter = load_drafter(folders[1] if kind == "head" else kind, target, rows=2, max_len=700)
    engine = Engine(target, {"x": drafter}, default="x", slots=2, max_len=700)
    engine.submit(Request("short", some_prompts()[0], 40))
    engine.submit(Request("long", long, 20))
    order = []
    tokens: dict[str, list[int]] = {"short": [], "long": []}
    while not engine.idle:
        for event in engine.step():
            order.append(event.id)
            tokens[event.id].extend(event.token_ids)
    assert tokens["long"] == wanted
    assert order.index("long") >= 3  # the other went on meanwhile


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"logprobs": -1}, "logprobs"),
        ({"stop_ids": frozenset({-9})}, "stop_ids"),
        ({"adapter": "x"}, "adapter"),
        ({"draft_len": 17}, "draft_len"),
        ({"sampling": Sampling(logit_bias=((300, 1.0),))}, "logit_bias"),
        ({"sampling": Sampling(banned=frozenset(range(300)))}, "banned"),
        (
            {
                "sampling": Sampling(allowed=frozenset({5}), min_tokens=1),
                "stop_ids": frozenset({5}),
            },
            "min_tokens",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    target: Target, wrong: dict[str, Any], field: str
) -> None:
    engine = build(target, NoDrafter())
    with pytest.raises(RequestError) as caught:
        engine.submit(Request("0", (5, 6), 4, **wrong))
    assert caught.value.field == field
    fine = Request("1", (5, 6), 2, Sampling(min_tokens=1), stop_ids=frozenset({7, 5000}))
    assert decode(engine, [fine])[1]["1"].outcome in ("length", "stop")


@pytest.mark.parametrize("kind", ["none", "ngram", "head"])
def test_ids_beyond_the_token_table_are_never_emitted(
    folders: tuple[Path, Path], target: Target, plain: dict[str, list[int]], kind: str
) -> None:
    """An output layer may be wider than its tokens: as if the rest were banned."""
    table = 150
    assert any(token >= table for tokens in plain.values() for token in tokens)
    prompts = [tuple(token % table for token in prompt) for prompt in some_prompts(4)]
    beyond = frozenset(range(table, target.vocab_size))

    def answers(token_count: int | None, banned: frozenset[int]) -> dict[str, list[int]]:
        drafter = load_drafter(
            folders[1] if kind == "head" else kind, target, rows=3, max_len=MAX_LEN
        )
        engine = Engine(
            target, {"x": drafter}, default="x", slots=3, max_len=MAX_LEN, token_count=token_count
        )
        requests = [
            Request(str(n), p, 16, Sampling(temperature=float(n % 2), seed=n, banned=banned))
            for n, p in enumerate(prompts)
        ]
        return decode(engine, requests)[0]

    found = answers(table, frozenset())
    assert found == answers(None, beyond)
    assert max(token for tokens in found.values() for token in tokens) < table
    with pytest.raises(RequestError, match="token id 150"):
        build_with_table(target, table).submit(Request("0", (table,), 3))


def build_with_table(target: Target, table: int) -> Engine:
    return Engine(
        target, {"x": NoDrafter()}, default="x", slots=1, max_len=MAX_LEN, token_count=table
    )
