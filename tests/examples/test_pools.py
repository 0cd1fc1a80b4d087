"""The work pools' templates are rendered as a worker renders them; the process pool runs a flow."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # Prefect brings it, without types

from flows.attempts import FINAL
from flows.catalogue import HEAVY, LIGHT

POOLS = Path(__file__).parent.parent.parent / "examples" / "pools"
SECONDS = 600.0  # on a busy machine
KINDS = ("process", "docker", "kubernetes")
NEEDED = {"docker": {"image": "paceline:1"}, "kubernetes": {"image": "paceline:1"}, "process": {}}


def template(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((POOLS / f"{kind}.json").read_text())
    return found


def placeholders(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from placeholders(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from placeholders(inner)
    elif isinstance(value, str):
        yield from re.findall(r"{{\s*(\w+)\s*}}", value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_placeholder_is_a_variable_and_every_variable_is_used(kind: str) -> None:
    found = template(kind)
    assert set(placeholders(found["job_configuration"])) == set(found["variables"]["properties"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_is_rendered_to_a_job_without_holes_and_holds_what_it_says(kind: str) -> None:
    import jsonschema  # type: ignore[import-untyped]  # as Prefect does
    from prefect.workers.base import BaseJobConfiguration

    found = template(kind)
    schema = found["variables"]
    jsonschema.Draft202012Validator.check_schema(schema)
    defaults = {
        name: one["default"] for name, one in schema["properties"].items() if "default" in one
    }
    jsonschema.validate({**defaults, **NEEDED[kind]}, schema)
    assert set(schema.get("required", ())) <= {*defaults, *NEEDED[kind]}

    class Job(BaseJobConfiguration):
        """Holds all of the template, as a pool's own kind of worker does."""

        model_config = {"extra": "allow"}

    values = {**NEEDED[kind], "command": "prefect flow-run execute", "env": {"PACELINE_HOME": "/h"}}
    client: Any = SimpleNamespace()  # only asked where a template names a block of the server's
    made: Any = asyncio.run(Job.from_template_and_values(found, values, client=client))
    job = made.model_dump()
    assert list(placeholders(job)) == []
    assert job["command"] == "prefect flow-run execute"
    assert job["env"]["PACELINE_HOME"] == "/h"
    if kind == "kubernetes":
        (container,) = job["job_manifest"]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "paceline:1"
        assert job["job_manifest"]["spec"]["backoffLimit"] == 0, (
            "what is tried again is ours to say"
        )


def test_every_flow_has_its_deployment_in_the_pool_that_it_belongs_to() -> None:
    stored = yaml.safe_load((POOLS / "prefect.yaml").read_text())
    pools = {}
    for one in stored["deployments"]:
        name = one["entrypoint"].split(".")[1]
        assert one["entrypoint"] == f"flows.{name}.{name}"
        assert one["name"] == f"{name}-{{{{ $HOME_ID }}}}"
        assert one["tags"] == ["paceline:{{ $HOME_ID }}"]
        pools[name] = one["work_pool"]["name"]
    assert pools == {
        **dict.fromkeys(LIGHT, "paceline-light"),
        **dict.fromkeys(HEAVY, "paceline-heavy"),
    }


def ended(url: str) -> str | None:
    """The state of the first run that has ended; None where none has."""
    import httpx

    answer = httpx.post(f"{url}/flow_runs/filter", json={}, timeout=60.0, trust_env=False)
    states = [str(run["state_type"]) for run in answer.raise_for_status().json()]
    return next((state for state in states if state in FINAL), None)


@pytest.mark.slow
def test_a_process_pool_runs_a_look(tmp_path: Path) -> None:
    """The server, the pool, the deployments and the worker are real; there is nothing to make."""
    from cli.stack import Stack

    home = tmp_path / "home"
    home.mkdir()
    (home / "paceline.toml").write_text('[pairings.line]\ntarget = "none/yet"\n')
    with Stack(home, os.environ) as stack:
        stack.create_schemas()
        stack.start_mlflow()
        url = f"{stack.start_prefect()}/api"
        environ = {
            **stack.environ(),
            **{"HOME_ID": "0a1b2c3d", "PACELINE_HOME": str(home), "PREFECT_API_URL": url},
            **{"PYTHONPATH": str(Path.cwd()), "PREFECT_WORKER_QUERY_SECONDS": "1"},
        }
        (home / "flows").mkdir(exist_ok=True)
        (home / "flows" / "id").write_text("0a1b2c3d")

        def run(*arguments: str) -> str:
            argv = [sys.executable, "-m", *arguments]
            done = subprocess.run(
                argv, env=environ, capture_output=True, text=True, timeout=600, cwd=POOLS
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        for pool in ("paceline-light", "paceline-heavy"):
            create = ("work-pool", "create", pool, "--type", "process")
            run("prefect", *create, "--base-job-template", "process.json")
        run("prefect", "--no-prompt", "deploy", "--all", "--prefect-file", "prefect.yaml")
        run("prefect", "deployment", "run", "watch/watch-0a1b2c3d")
        argv = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "paceline-light"]
        with stack.child("pool", argv, ready_url=None, extra=environ):
            ends = time.monotonic() + SECONDS
            while (state := ended(url)) is None:
                stack.check()
                assert time.monotonic() < ends, (stack.run / "pool.log").read_text()[-4000:]
                time.sleep(1.0)
        assert state == "COMPLETED", (stack.run / "pool.log").read_text()[-4000:]
        assert "runs that are gone" in run("zombies")
