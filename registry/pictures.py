"""Pictures that MLflow's pages show: of a pair, put on its run, and of a pairing's lineage.

MLflow's pages show images from a run's files by an address relative to themselves. The lineage is
of no one pair, so it lies on a run of its own, the pairing's; drawn anew, it is new on every page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from registry.door import speaking
from registry.lineage import svg
from registry.upload import experiment_of
from registry.versions import OURS, PairingState

if TYPE_CHECKING:
    from registry.store import Store

LINEAGE = "lineage.svg"
KIND = "lineage"  # of the run, in the tag OURS


def log_picture(store: Store, run_id: str, picture: Path, *, folder: str = "loop") -> None:
    """Show `picture` among the run's artifacts; the same name is written over."""
    with speaking(store.url, f"logging {picture.name}"):
        store.client.log_artifact(run_id, str(picture), folder)


def draw_lineage(store: Store, state: PairingState) -> str:
    """Draw the pairing's lineage anew; gives the Markdown that shows it."""
    run_id = _run(store, state.pairing)
    with speaking(store.url, f"drawing the lineage of {state.pairing}"):
        store.client.log_text(run_id, svg(state), LINEAGE)
    return _markdown(run_id)


def lineage_markdown(store: Store, pairing: str) -> str:
    """The Markdown that shows the pairing's lineage as it was last drawn."""
    return _markdown(_run(store, pairing))


def _run(store: Store, pairing: str) -> str:
    client = store.client
    with speaking(store.url, f"looking for the lineage of {pairing}"):
        experiment = experiment_of(client, store.url, pairing)
        found = client.search_runs([experiment], f"tags.`{OURS}` = '{KIND}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        run = client.create_run(experiment, tags={OURS: KIND}, run_name=f"lineage of {pairing}")
        client.set_terminated(run.info.run_id)
        return str(run.info.run_id)


def _markdown(run_id: str) -> str:
    return f"![lineage](get-artifact?path={LINEAGE}&run_uuid={run_id})"
