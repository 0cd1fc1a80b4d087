"""A home that served one pairing is given another: no start serves the first one's pair for it."""

from __future__ import annotations

from pathlib import Path

from serving.journal import SWITCHED, Journal
from tests.serving.following import Scene, lived
from tests.serving.registry_stand_in import PAIRING, stand_in


def test_a_start_takes_no_pair_of_another_pairing_from_the_disk(
    target_folder: Path, tmp_path: Path
) -> None:
    with stand_in(tmp_path / "registry") as registry:
        good = registry.promote(registry.register(target_folder, "ngram"))

        async def life(scene: Scene) -> None:
            assert await scene.look() == good

        lived(tmp_path, registry, life)
        registry.away = True
        lived(tmp_path, registry, life)  # from its own copy
        path = tmp_path / "serving" / "journal.jsonl"
        path.write_text(path.read_text().replace(f'"{PAIRING}"', '"anothers"'))

        async def again(scene: Scene) -> None:
            assert await scene.look() is None

        lived(tmp_path, registry, again)


def test_the_last_good_pair_is_of_the_pairing_that_is_served(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for pairing, pair in (("", "p-0"), ("one", "p-1"), ("two", "p-2")):
        Journal(path, pairing=pairing).write(SWITCHED, pair, "1")
    found = {name: Journal(path, pairing=name).last_good for name in ("one", "two", "three", "")}
    good = {name: step.pair for name, step in found.items() if step is not None}
    assert good == {"one": "p-1", "two": "p-2", "three": "p-0", "": "p-2"}
