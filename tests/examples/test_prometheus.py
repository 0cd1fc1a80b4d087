"""What the examples hold for an existing Prometheus and Alertmanager is what they load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from evaluation.endpoints import free_port
from monitoring.causes import CAUSES
from monitoring.exporting import Exporter, serve
from serving.metrics import Metrics
from serving.settings import ServeSettings
from tests.serving.served import serving
from tests.toys import toy_target_folder

FOLDER = Path(__file__).parents[2] / "examples" / "prometheus"
RULES = ("paceline.rules.yml", "vllm.rules.yml")
OURS = re.compile(r"(?<![\w:])paceline_\w+")
VLLM = re.compile(r"vllm:\w+")
# what vllm/v1/spec_decode/metrics.py counts
OF_VLLM = {
    f"vllm:spec_decode_num_{name}_total"
    for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
}


def expressions(name: str) -> str:
    """A rule file without its comments, labels and annotations."""
    lines = (FOLDER / name).read_text().splitlines()
    kept = [
        line for line in lines if not re.match(r"\s*(#|labels:|summary:|runbook:|- name:)", line)
    ]
    return re.sub(r"paceline_cause", "", "\n".join(kept))


def exported() -> set[str]:
    """Every name of a sample that the server or the monitor can show."""
    names: set[str] = set()
    for registry, made in (
        (CollectorRegistry(), Metrics),
        (CollectorRegistry(), Exporter),
    ):
        for family in made(registry).collect():
            ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            names |= {family.name + end for end in ends.get(family.type, [""])}
    # set by serving/admin.py with each look
    return names | {"paceline_ready", "paceline_unlogged_exchanges", "paceline_waiting_requests"}


def test_every_figure_that_a_rule_asks_for_is_exported() -> None:
    asked = set(OURS.findall(expressions("paceline.rules.yml")))
    assert asked - exported() == set()
    assert {"paceline_alarm", "paceline_judged_tokens_total"} <= asked
    assert set(VLLM.findall(expressions("vllm.rules.yml"))) <= OF_VLLM


def test_every_alert_is_in_the_tests_and_says_how_urgent_it_is() -> None:
    tests = (FOLDER / "paceline.tests.yml").read_text()
    for name in RULES:
        for alert in re.split(r"- alert: ", (FOLDER / name).read_text())[1:]:
            title = alert.split()[0]
            assert f'"{title}"' in tests, title
            assert "severity: " in alert or title == "PacelineAlarm", title
            assert "runbook: docs/" in alert
            cause = re.search(r"paceline_cause: (\w+)", alert)
            assert cause is None or CAUSES[cause[1]].outside


def test_every_runbook_is_a_heading_that_is_there() -> None:
    for name in RULES:
        for page, _, anchor in re.findall(
            r"runbook: (\S+?\.md)(#(\S+))?", (FOLDER / name).read_text()
        ):
            text = (FOLDER.parents[1] / page).read_text()
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            found = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert not anchor or anchor in found, (name, anchor)


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here; Debian has it in prometheus or prometheus-alertmanager")
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The examples, with the secrets that they name."""
    shutil.copytree(FOLDER, tmp_path / "prometheus")
    for name in ("alert-token", "admin-key"):
        (tmp_path / "prometheus" / name).write_text("t" * 20)
    return tmp_path / "prometheus"


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # evaluates a week of samples
def test_promtool_loads_the_configuration_and_every_alert_fires_when_it_should(
    copied: Path,
) -> None:
    promtool = tool("promtool")
    run(promtool, "check", "config", "prometheus.yml", cwd=copied)
    run(promtool, "test", "rules", "paceline.tests.yml", cwd=copied)


def test_amtool_loads_the_routes(copied: Path) -> None:
    run(tool("amtool"), "check-config", "alertmanager.yml", cwd=copied)


@pytest.mark.slow  # starts Prometheus beside a server
def test_a_real_prometheus_scrapes_a_server_and_a_monitor_and_holds_the_rules_healthy(
    copied: Path, tmp_path: Path
) -> None:
    target_folder = toy_target_folder(tmp_path / "toy", layers=1)
    prometheus, registry = tool("prometheus"), CollectorRegistry()
    Exporter(registry)
    port, monitor = free_port(), free_port()
    end = serve(registry, monitor)
    process = None
    try:
        with serving(ServeSettings(home=tmp_path, target=target_folder)) as served:
            config = (copied / "prometheus.yml").read_text()
            for before, after in (
                ("127.0.0.1:8000", served.url.removeprefix("http://")),
                ("127.0.0.1:9464", f"127.0.0.1:{monitor}"),
                ("interval: 15s", "interval: 1s"),
            ):
                assert before in config
                config = config.replace(before, after)
            (copied / "prometheus.yml").write_text(config)
            process = subprocess.Popen(
                [
                    *(prometheus, "--config.file=prometheus.yml"),
                    *(
                        f"--web.listen-address=127.0.0.1:{port}",
                        f"--storage.tsdb.path={tmp_path}/d",
                    ),
                ],
                cwd=copied,
                stderr=subprocess.DEVNULL,
            )
            up = settled(f"http://127.0.0.1:{port}", process)
    finally:
        end()
        if process is not None:
            process.terminate()
            process.wait(30)
    assert up == {"paceline", "paceline-monitor"}


def settled(url: str, process: subprocess.Popen[bytes]) -> set[str]:
    """The jobs that are up once every rule was evaluated; all rules are healthy then."""

    def asked(path: str) -> dict[str, list[dict[str, object]]]:
        with urllib.request.urlopen(url + path, timeout=5) as answer:
            found: dict[str, list[dict[str, object]]] = json.load(answer)["data"]
            return found

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.5)
        try:
            groups = asked("/api/v1/rules")["groups"]
            targets = asked("/api/v1/targets")["activeTargets"]
        except OSError:  # it is not there yet
            continue
        rules = [rule for group in groups for rule in group["rules"]]  # type: ignore[attr-defined]  # a list, by Prometheus' API
        health = {str(rule["health"]) for rule in rules}
        jobs = {str(t["scrapePool"]) for t in targets if t["health"] == "up"}
        if health == {"ok"} and len(jobs) == 2:
            assert len(rules) == 21
            return jobs
        assert "err" not in health, rules
    raise AssertionError("Prometheus did not settle")
