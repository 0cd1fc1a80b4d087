"""A real server under a real monitor: it is read as it is, and a draft that dies in it is seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from monitoring.baselines import Baseline
from monitoring.monitor import Monitor, Paths
from monitoring.outbox import Outbox
from monitoring.series import Point, Throughput, read_series
from monitoring.settings import Source
from monitoring.state import load
from monitoring.watched import Expected
from serving.settings import ServeSettings
from speculation.proposal import Ask, Proposal
from speculation.records import Interval
from tests.serving.served import Served, serving

PROMPTS = [
    f"the {word} of" for word in ("cat", "dog", "sun", "sea", "hill", "road", "bird", "tree")
]


def answers(server: Served, prompts: Sequence[str]) -> list[str]:
    body = {"max_tokens": 40, "temperature": 0.0}
    found = [server.client.post("/v1/completions", json={**body, "prompt": p}) for p in prompts]
    return [one.raise_for_status().json()["choices"][0]["text"] for one in found]


@pytest.mark.slow
def test_a_draft_that_dies_in_the_running_server_is_seen_within_twenty_requests(
    target_folder: Path, tmp_path: Path
) -> None:
    """The target drafts for itself, so all is accepted; then the drafter's answers are replaced."""
    settings = ServeSettings(
        home=tmp_path / "home",
        target=target_folder,
        draft=str(target_folder),
        adaptive=False,
        draft_len=4,
        max_slots=4,
        max_context=300,
    )
    paths = Paths(tmp_path / "watching")
    with serving(settings) as server:
        release = server.loaded.host.release.digest
        usual = Expected(release, Baseline(Interval(0.95, 0.94, 0.96, 1000)))
        source = {"": Source(urls=(server.url,))}
        with Monitor(source, paths, expected=lambda pair: usual) as monitor:
            monitor.poll()
            healthy = answers(server, PROMPTS)
            monitor.poll()
            assert Outbox(paths.outbox).alarms() == []

            loaded = server.loaded
            drafter = loaded.engine.drafters[loaded.default.name]
            ours, changed = drafter.propose, []

            def dead(asks: Sequence[Ask]) -> Proposal:
                found = ours(asks)
                ids = [[(token + 1) % 50 for token in row] for row in found.ids]
                changed.append(ids != found.ids)
                return Proposal(ids, None)

            drafter.propose = dead  # type: ignore[method-assign]  # the injected fault
            assert answers(server, PROMPTS) == healthy  # output stays right
            assert any(changed)
            monitor.poll()
            monitor.poll()
        (alarm,) = Outbox(paths.outbox).alarms()
        assert (alarm.cause, alarm.release) == ("dead_draft", release)
        assert alarm.requests <= 20
        assert alarm.action == "roll back"
        watched = load(paths.state).of(alarm.pair, alarm.drafter)
        assert watched.engine.startswith("builtin")
        assert watched.expected_release == watched.release
        assert set(watched.served_parts) >= {"weights", "tokenizer", "chat_template"}
        assert watched.kept[0].cell == "adapter=none|context up to 256|temperature=0"
    points = [one for one in read_series(paths.series) if isinstance(one, Point)]
    assert [one.requests for one in points] == [len(PROMPTS), 2 * len(PROMPTS)]
    counted = [one for one in read_series(paths.series) if isinstance(one, Throughput)]
    assert [one.requests for one in counted] == [len(PROMPTS), len(PROMPTS)]
