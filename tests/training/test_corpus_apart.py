"""What is held out is never learned from, also where a source stands under two names."""

from __future__ import annotations

from training.corpus import Documented, apart


def entry(name: str, source: str) -> Documented:
    return Documented(name, "function", source, "What it does.")


def test_a_source_under_two_names_is_held_out_under_both_and_told_once() -> None:
    entries = [entry(f"m:f{n}", f"def f{n}(): ...") for n in range(60)]
    held = next(e for e in entries if e.held_out)
    seen = next(e for e in entries if not e.held_out)
    twins = [
        next(t for n in range(99) if not (t := entry(f"twin:{n}", held.source)).held_out),
        next(t for n in range(99) if not (t := entry(f"twin:{n}", seen.source)).held_out),
    ]
    learned, held_out = apart([*twins, *entries])
    assert not {e.prompt for e in learned} & {e.prompt for e in held_out}
    assert len({e.prompt for e in learned}) == len(learned)
    assert {e.prompt for e in [*learned, *held_out]} == {e.prompt for e in entries}
    assert held.prompt in {e.prompt for e in held_out}
