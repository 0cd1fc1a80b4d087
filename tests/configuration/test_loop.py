"""The dials of the loop: where releases come from, what it may do by itself, whom it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from configuration.faults import ConfigurationError
from configuration.limits import Limits
from configuration.notices import Notices
from configuration.reading import read_settings
from configuration.settings import Pairing, Settings
from configuration.sources import Source
from configuration.writing import default_toml

SOURCES = """
[pairings.docs]
target = "targets/small"
[[pairings.docs.sources]]
kind = "mlflow"
place = "summariser"
[[pairings.docs.sources]]
kind = "folder"
place = "/models/summariser"
settle_seconds = 1
"""


def keys(tmp_path: Path, text: str, **environ: str) -> dict[str, str]:
    (tmp_path / "paceline.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_settings(tmp_path, environ=environ)
    return {fault.key: f"{fault.got}, wanted {fault.wanted}" for fault in caught.value.faults}


def test_sources_are_a_list_of_tables(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text(SOURCES)
    assert read_settings(tmp_path, environ={}).pairing().sources == (
        Source("mlflow", "summariser"),
        Source("folder", "/models/summariser", settle_seconds=1.0),
    )


def test_what_has_tables_of_its_own_is_written_as_it_is_read(tmp_path: Path) -> None:
    line = Pairing(
        target="targets/small",
        sources=(Source("mlflow", "summariser", every_version=True), Source("hub", "me/small")),
        servers=("http://127.0.0.1:8000",),
        adapters={"law": Path("adapters/law")},
        limits=Limits(approval="person", refresh="0 3 * * 1"),
    )
    (tmp_path / "paceline.toml").write_text(default_toml({"docs": line, "code": Pairing()}))
    settings = read_settings(tmp_path, environ={})
    assert settings == Settings(home=tmp_path, pairings={"docs": line, "code": Pairing()})


@pytest.mark.parametrize(
    ("given", "key", "wanted"),
    [
        ('kind = "hub"\nplace = "small"', "sources[0]", "owner/name"),
        ('kind = "store"\nplace = "/models"', "sources[0]", "s3://bucket/prefix"),
        ('kind = "folder"\nplace = " "', "sources[0]", "a folder's path"),
        ('kind = "ftp"\nplace = "x"', "sources[0].kind", "one of 'mlflow'"),
        ('kind = "folder"', "sources[0].place", "a string"),
        ('kind = "folder"\nplace = "x"\nmarker = "a/b"', "sources[0].marker", "a file's name"),
        ('kind = "hub"\nplace = "a/b"\nrevision = ""', "sources[0].revision", "a name"),
    ],
)
def test_a_source_that_can_be_none_is_named(
    tmp_path: Path, given: str, key: str, wanted: str
) -> None:
    found = keys(tmp_path, f"[pairings.docs]\n[[pairings.docs.sources]]\n{given}\n")
    ((where, why),) = found.items()
    assert where.startswith(f"pairings.docs.{key}")
    assert wanted in why


def test_a_source_twice_is_a_mistake(tmp_path: Path) -> None:
    again = SOURCES + '[[pairings.docs.sources]]\nkind = "mlflow"\nplace = "summariser"\n'
    assert "each once" in keys(tmp_path, again)["pairings.docs.sources"]


def test_a_list_of_tables_has_no_variable(tmp_path: Path) -> None:
    name = "PACELINE_PAIRINGS__DOCS__SOURCES"
    for variable in (name, f"{name}__0__PLACE"):
        assert "a list of tables" in keys(tmp_path, SOURCES, **{variable: "x"})[variable]
    (tmp_path / "paceline.toml").write_text(SOURCES)
    environ = {
        "PACELINE_PAIRINGS__DOCS__ADAPTERS__LAW": "adapters/law",
        "PACELINE_PAIRINGS__DOCS__LIMITS__RETRAINS_A_DAY": "9",
    }
    line = read_settings(tmp_path, environ=environ).pairing()
    assert line.adapters == {"law": Path("adapters/law")}
    assert line.limits.retrains_a_day == 9


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('refresh = "daily"', "limits.refresh"),
        ("turns_a_day = 0", "limits.turns_a_day"),
        ("cooldown_minutes = -1", "limits.cooldown_minutes"),
        ('approval = "nobody"', "limits.approval"),
    ],
)
def test_a_limit_that_can_be_none_is_named(tmp_path: Path, given: str, key: str) -> None:
    assert list(keys(tmp_path, f"[pairings.docs]\n[pairings.docs.limits]\n{given}\n")) == [
        f"pairings.docs.{key}"
    ]


def test_a_server_s_address_holds_no_password(tmp_path: Path) -> None:
    found = keys(tmp_path, '[pairings.docs]\nservers = ["http://me:hush@host"]\n')
    assert list(found) == ["pairings.docs.servers"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"webhook": "http://127.0.0.1:9"}, "hosts names"),
        ({"webhook": "https://me:hush@hooks.example"}, "without what is before the @"),
        ({"webhook": "hooks.example"}, "an https URL"),
        ({"block": "ops"}, "TYPE/NAME"),
        ({"hosts": ("http://x",)}, "names or addresses"),
    ],
)
def test_a_notice_goes_nowhere_by_mistake(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted) as refused:
        Notices(**given)  # type: ignore[arg-type] # what a file may hold
    assert "hush" not in str(refused.value)
    Notices(webhook="http://127.0.0.1:9", hosts=("127.0.0.1",))
