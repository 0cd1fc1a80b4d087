"""What sources show is taken in once, whole, in order, and refused once where it is no release."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from configuration.hooks import HookListener
from configuration.settings import Pairing, Settings
from configuration.sources import Source
from configuration.writing import write_default
from flows import take_in as module
from flows import taking
from flows.ledger import entries
from flows.sources import arriving, subscribe
from flows.take_in import take_in
from registry import subscribing
from registry.errors import StoreError
from registry.fingerprint import fingerprint
from registry.schema import prepare_database
from registry.store import Store
from tests.registry import tiny

STEPS = ("fetch", "identify", "settle", "register")


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def home(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose registry is empty."""
    home = tmp_path / "home"
    (home / "mlflow").mkdir(parents=True)
    shutil.copy(database, home / "mlflow" / "mlflow.db")
    monkeypatch.setenv("PACELINE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def without_prefect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow as the plain function that it is, but where a test asks for Prefect itself."""
    if "prefect_server" in request.fixturenames:
        return
    for name in STEPS:
        monkeypatch.setattr(module, name, getattr(module, name).fn)
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("take_in"))
    monkeypatch.setattr(module, "create_markdown_artifact", lambda *given, **named: None)
    monkeypatch.setattr(module, "reporting", lambda *given: lambda *told: None)


Look = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def look(home: Path, tmp_path: Path) -> Callable[..., Look]:
    """A pairing with these sources; a look at it gives what is to be taken in, and keeps `rows`."""

    def pairing(*sources: Source, target: str = "") -> Look:
        line = Pairing(target=target, sources=sources)
        write_default(home / "paceline.toml", {"docs": line})
        settings = Settings(home=home, pairings={"docs": line})

        def once() -> list[dict[str, Any]]:
            work, look.rows = arriving(  # type: ignore[attr-defined] # a place to look at
                *(settings, "docs", line, store(home)),
                stands=lambda key, *, inputs: ("due", ""),
            )
            return work

        return once

    look = pairing
    return pairing


def store(home: Path) -> Store:
    return Store(Settings(home=home).registry_url)


def notices(home: Path) -> list[dict[str, Any]]:
    """What people are told."""
    return [
        json.loads(path.read_text()) for path in sorted((home / "flows" / "notices").glob("*.json"))
    ]


def folder_source(place: Path, **given: Any) -> Source:
    return Source("folder", str(place), settle_seconds=0.0, **given)


def taken(work: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [take_in.fn(**one["parameters"]) for one in work]


def test_the_flow_takes_in_what_a_look_found(
    prefect_server: None, home: Path, look: Any, tmp_path: Path
) -> None:
    first = tiny.target(tmp_path / "models" / "1")
    (work,) = look(folder_source(tmp_path / "models"))()
    made = take_in(**work["parameters"])
    assert (made["version"], made["folder"], made["new"]) == (1, str(first), True)
    assert take_in(**work["parameters"]) == {"outcome": made["outcome"]}


def test_a_release_is_registered_where_it_lies_and_once_however_many_see_it(
    home: Path, look: Any, tmp_path: Path
) -> None:
    place = tmp_path / "models"
    first = tiny.target(place / "1")
    again = look(folder_source(place), folder_source(place, marker="config.json"))
    (made,) = taken(again())
    assert (made["version"], made["folder"], made["new"]) == (1, str(first), True)
    assert again() == []
    assert len(list((home / "flows" / "hints").iterdir())) == 1, "the next look comes soon"
    shutil.copytree(first, tmp_path / "elsewhere" / "copy")
    also = look(folder_source(place), folder_source(tmp_path / "elsewhere"))
    (known,) = taken(also())
    assert (known["version"], known["folder"], known["new"]) == (1, str(first), False)
    assert also() == []
    assert [one.uri for one in store(home).releases("docs")] == [str(first)]
    assert not list((home / "releases").rglob("*")), "nothing was copied"


def test_several_are_taken_in_one_at_a_time_in_the_order_they_came(
    home: Path, look: Any, tmp_path: Path
) -> None:
    place = tmp_path / "models"
    place.mkdir()
    again = look(folder_source(place))
    assert again() == []
    for n in (1, 2, 3):
        folder = tiny.target(place / str(n), seed=n)
        for path in folder.iterdir():
            os.utime(path, (1000 - n, 1000 - n))  # the third was written first
    seen = []
    while work := again():
        assert len(work) == 1
        seen += [Path(made["folder"]).name for made in taken(work)]
    assert seen == ["3", "2", "1"]


def test_a_place_that_each_release_is_written_over_is_copied(
    home: Path, look: Any, tmp_path: Path
) -> None:
    place = tiny.target(tmp_path / "current")
    again = look(folder_source(place))
    (first,) = taken(again())
    tiny.target(place, seed=1)
    (second,) = taken(again())
    assert (first["version"], second["version"]) == (1, 2)
    for made in (first, second):
        folder = Path(made["folder"])
        assert folder == home / "releases" / "docs" / made["release"][:16]
        assert fingerprint(folder).digest == made["release"]
    tiny.target(place)  # back to the first one
    (back,) = taken(again())
    assert (back["version"], back["back"]) == (1, True)
    assert [one["what"] for one in entries(home)] == ["asked"]
    assert "Going back a release is never done by itself" in entries(home)[0]["why"]
    assert not list((home / "releases" / "docs").glob(".*")), "nothing half done is left"


def test_a_link_is_followed_and_what_it_leads_to_stays_where_it_is(
    home: Path, look: Any, tmp_path: Path
) -> None:
    first, second = (tiny.target(tmp_path / str(n), seed=n) for n in (1, 2))
    link = tmp_path / "current"
    link.symlink_to(first)
    again = look(folder_source(link))
    assert [made["folder"] for made in taken(again())] == [str(first)]
    link.unlink()
    link.symlink_to(second)
    assert [made["folder"] for made in taken(again())] == [str(second)]
    link.unlink()
    link.symlink_to(first)
    assert again() == []
    assert [row["action"] for row in look.rows] == ["ask"]
    assert "release 1" in look.rows[0]["why"]
    assert [one["title"] for one in notices(home)] == [f"docs: folder:{link} went back a release"]
    assert again() == []
    assert look.rows == [], "told once"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: tiny.target(folder, auto_map={"AutoModel": "x.Y"}), "auto_map"),
        (
            lambda folder: tiny.target(folder, architectures=None, model_type=None),
            "no architecture",
        ),
    ],
)
def test_what_is_no_release_is_refused_once_and_looked_at_again_when_it_changes(
    home: Path, look: Any, tmp_path: Path, spoil: Callable[[Path], Path], why: str
) -> None:
    place = tmp_path / "models"
    spoil(place / "1")
    again = look(folder_source(place))
    (made,) = taken(again())
    assert made["outcome"].startswith("refused: ")
    assert why in made["outcome"]
    assert again() == []
    assert [one["what"] for one in entries(home)] == ["refused"]
    assert [one["title"] for one in notices(home)] == [
        f"docs: what folder:{place} shows is no release"
    ]
    tiny.target(place / "1", seed=1)
    (mended,) = taken(again())
    assert mended["version"] == 1


def test_a_half_written_release_waits_and_says_for_what(
    home: Path, look: Any, tmp_path: Path
) -> None:
    place = tmp_path / "models"
    whole = tiny.target(tmp_path / "whole")
    (place / "1").mkdir(parents=True)
    again = look(folder_source(place))
    for path in sorted(whole.iterdir()):
        assert again() == []
        assert look.rows[0]["why"].startswith(f"{place / '1'}: "), look.rows
        shutil.copy2(path, place / "1" / path.name)
        if path.name == "tokenizer.json":
            break
    shutil.copy2(whole / "tokenizer_config.json", place / "1")
    assert [made["version"] for made in taken(again())] == [1]


def test_what_changes_while_it_is_taken_in_arrives_anew(
    home: Path, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "models"
    folder = tiny.target(place / "1")
    again = look(folder_source(place))
    read = fingerprint

    def meanwhile(of: Path, **given: Any) -> Any:
        told = read(of, **given)
        tiny.target(folder, seed=1)
        return told

    monkeypatch.setattr(taking, "fingerprint", meanwhile)
    (made,) = taken(again())
    assert made["outcome"].startswith("changed: ")
    assert store(home).releases("docs") == []
    monkeypatch.setattr(taking, "fingerprint", read)
    (made,) = taken(again())
    assert made["release"] == fingerprint(folder).digest
    assert entries(home) == []


def test_a_target_that_cannot_fit_this_machine_is_not_taken_in_and_says_so(
    home: Path, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.target(tmp_path / "models" / "1")
    again = look(folder_source(tmp_path / "models"))
    monkeypatch.setattr(taking, "host_bytes", lambda: 100)
    monkeypatch.setattr(taking, "GPU", tmp_path / "none")
    with pytest.raises(ValueError, match="does not fit this machine.*paceline release"):
        taken(again())
    monkeypatch.setattr(taking, "host_bytes", lambda: 2**40)
    assert [made["version"] for made in taken(again())] == [1], "of a larger machine"
    assert [one["title"] for one in notices(home)] == ["docs: a release cannot be taken in"]


def test_an_adapter_is_a_release_of_its_base_with_it(
    home: Path, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, place = tiny.target(tmp_path / "base"), tmp_path / "adapters"
    lora = tiny.lora(place / "law", "base_model.model.model.layers.0.mlp.up_proj", rows=tiny.HIDDEN)
    merges = []

    def merge(step: str, spec: dict[str, Any], report: Any) -> Path:
        from registry.adapters import record_merge

        merges.append(step)
        out = tiny.target(Path(spec["out"]), seed=7)
        record_merge(out, base=Path(spec["base"]), adapter=Path(spec["adapter"]))
        return out

    monkeypatch.setattr(taking, "in_child", merge)
    monkeypatch.setattr(taking, "GPU", tmp_path / "none")
    again = look(folder_source(place), target=str(base))
    (made,) = taken(again())
    wanted = fingerprint(base, adapter=lora)
    assert made["release"] == wanted.digest
    assert fingerprint(Path(made["folder"])) == wanted
    shutil.copytree(lora, place / "copy")
    (known,) = taken(again())
    assert (known["version"], known["folder"]) == (1, made["folder"])
    assert merges == ["merge"], "a known one is not merged again"


def test_an_adapter_of_something_else_is_refused_and_one_without_a_base_says_what_to_set(
    home: Path, look: Any, tmp_path: Path
) -> None:
    place = tmp_path / "adapters"
    tiny.lora(place / "law", "base_model.model.model.layers.99.mlp.up_proj", rows=tiny.HIDDEN)
    again = look(folder_source(place))
    with pytest.raises(ValueError, match="neither base nor target"):
        taken(again())
    base = tiny.target(tmp_path / "base")
    again = look(folder_source(place, base=str(base)))
    (made,) = taken(again())
    assert "does not fit" in made["outcome"]


def test_a_version_of_a_registered_model_is_fetched_and_linked_and_going_back_is_told(
    home: Path, look: Any, tmp_path: Path
) -> None:
    theirs = store(home).client
    theirs.create_registered_model("summariser")
    again = look(Source("mlflow", "summariser", alias="production"))
    assert again() == []
    made = []
    for n in (1, 2):
        theirs.create_model_version("summariser", str(tiny.target(tmp_path / str(n), seed=n)))
        theirs.set_registered_model_alias("summariser", "production", str(n))
        made += taken(again())
    releases = store(home).releases("docs")
    assert [one.source for one in releases] == ["models:/summariser/1", "models:/summariser/2"]
    assert [one["version"] for one in made] == [1, 2]
    theirs.set_registered_model_alias("summariser", "production", "1")
    assert again() == []
    assert "is back at models:/summariser/1 (release 1" in look.rows[0]["why"]


def test_a_whole_release_is_taken_in_by_the_look_that_saw_it_once_it_was_quiet(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    tiny.target(tmp_path / "models" / "1")
    (tmp_path / "models" / "half").mkdir()

    def look(seconds: float) -> tuple[list[str], list[float]]:
        nonlocal clock
        slept: list[float] = []

        def sleep(given: float) -> None:
            nonlocal clock
            slept.append(given)
            clock += given

        source = Source("folder", str(tmp_path / "models"), settle_seconds=seconds)
        line = Pairing(sources=(source,))
        work, _ = arriving(
            *(Settings(home=home, pairings={"docs": line}), "docs", line, store(home)),
            stands=lambda key, *, inputs: ("due", ""),
            sleep=sleep,
        )
        return [one["parameters"]["arrival"]["place"] for one in work], slept

    assert look(3600.0) == ([], [])
    (home / "sources" / "docs.json").unlink()
    places, slept = look(10.0)
    assert places == [str(tmp_path / "models" / "1")]
    assert slept == [10.1]
    assert look(10.0)[1] == [], "it was quiet before"


def test_what_was_taken_in_is_not_looked_into_again(
    home: Path, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (1, 2):
        tiny.target(tmp_path / "models" / str(n), seed=n)
    again = look(folder_source(tmp_path / "models"))
    while work := again():
        taken(work)
    read: list[Path] = []

    def unfinished(folder: Path, *, marker: str) -> str:
        read.append(folder)
        return ""

    monkeypatch.setattr("flows.sources.unfinished", unfinished)
    assert again() == []
    assert read == []
    tiny.target(tmp_path / "models" / "3", seed=3)
    assert len(again()) == 1
    assert read == [tmp_path / "models" / "3"]


def test_one_source_that_is_away_stops_no_other(home: Path, look: Any, tmp_path: Path) -> None:
    tiny.target(tmp_path / "models" / "1")
    again = look(folder_source(tmp_path / "gone"), folder_source(tmp_path / "models"))
    assert [made["version"] for made in taken(again())] == [1]
    again()
    assert "got no folder" in look.rows[0]["why"]


@pytest.mark.parametrize("killed_in", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_it_goes_on_and_registers_once(
    home: Path,
    look: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_in: str,
    after: bool,
) -> None:
    place = tiny.target(tmp_path / "current")
    again = look(folder_source(place))
    (work,) = again()
    real = getattr(taking, killed_in)

    def killed(*given: Any) -> Any:
        if after:
            real(*given)
        raise KeyboardInterrupt  # what no edge turns into an outcome

    with monkeypatch.context() as patched:
        patched.setattr(taking, killed_in, killed)
        with pytest.raises(KeyboardInterrupt):
            taken([work])
    (made,) = taken([work])
    assert made["version"] == 1
    assert fingerprint(Path(made["folder"])).digest == made["release"]
    assert len(store(home).releases("docs")) == 1
    assert again() == []


def test_the_registry_is_asked_to_post_once_a_start_and_a_no_stops_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ensure(of: Store, url: str, secret: str) -> None:
        asked.append(url)
        if len(asked) == 1:
            raise StoreError("it wants https")

    monkeypatch.setattr(subscribing, "ensure_webhook", ensure)
    nobody = Settings(home=home)
    assert subscribe(nobody, store(home)) == ""
    heard = replace(nobody, hooks=HookListener(port=4000), hook_secret="s" * 20)
    assert "it wants https" in subscribe(heard, store(home))
    assert [subscribe(heard, store(home)) for _ in range(3)] == ["", "", ""]
    monkeypatch.setenv("FLOWS_WORKER_STARTED", "later")
    assert subscribe(heard, store(home)) == ""
    assert asked == ["http://127.0.0.1:4000/hooks/registry"] * 3


def test_an_arrival_is_the_same_after_a_way_through_json() -> None:
    from registry.arrivals import Arrival

    one = Arrival("/m/1", "s", 3.0, True, "")
    assert Arrival(**asdict(one)) == one
    assert replace(one, created=4.0).id == one.id
