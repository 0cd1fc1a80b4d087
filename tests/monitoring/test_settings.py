"""The dials of monitoring."""

from __future__ import annotations

from pathlib import Path

import pytest

from configuration.faults import ConfigurationError
from configuration.reading import read_settings
from monitoring.settings import Monitoring, Source


def written(home: Path, text: str) -> Monitoring:
    (home / "paceline.toml").write_text(text)
    return read_settings(home, environ={}).monitoring


def test_a_home_without_the_table_watches_its_own_server(tmp_path: Path) -> None:
    assert written(tmp_path, "").sources == {}


def test_sources_are_tables_by_name(tmp_path: Path) -> None:
    text = """
    [monitoring]
    every_seconds = 15
    [monitoring.sources.fleet]
    kind = "vllm"
    urls = ["http://10.0.0.1:8000", "https://b.example:8443/vllm"]
    draft_len = 4
    """
    found = written(tmp_path, text)
    assert found.every_seconds == 15.0
    assert found.sources["fleet"] == Source(
        "vllm", ("http://10.0.0.1:8000", "https://b.example:8443/vllm"), draft_len=4
    )


def test_tokens_come_from_the_environment_and_are_never_shown(tmp_path: Path) -> None:
    names = ("alert_token", "scrape_token", "prometheus_token")
    environ = {f"PACELINE_{name.upper()}": f"hush-{name}" for name in names}
    settings = read_settings(tmp_path, environ=environ)
    assert [getattr(settings, name) for name in names] == [*environ.values()]
    assert "hush" not in repr(settings)
    (tmp_path / "paceline.toml").write_text('alert_token = "hush"\n')
    with pytest.raises(ConfigurationError, match="PACELINE_ALERT_TOKEN"):
        read_settings(tmp_path, environ={})


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("floor_budget = 0.07", "at most 0.069"),
        ("every_seconds = 0", "more than 0"),
        ("metrics_port = 70000", "0 to 65535"),
        ("cooldown_minutes = -1.0", "0 or more"),
        ('sources.a.urls = ["http://me:hush@host:1"]', "PACELINE_SCRAPE_TOKEN"),
        ('sources.a.urls = ["ftp://host"]', "http(s)://HOST:PORT"),
        ('sources.a.urls = ["http://[::1"]', "http(s)://HOST:PORT"),
        ('sources.a = {kind = "prometheus", urls = ["http://a", "http://b"]}', "one"),
        ('sources.a.kind = "tgi"', "one of"),
    ],
)
def test_a_wrong_dial_is_named_and_no_password_is_shown(
    tmp_path: Path, table: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        written(tmp_path, f"[monitoring]\n{table}\n")
    assert told in str(refused.value)
    assert "hush" not in str(refused.value)
