"""The records that a `paceline.toml` turns into. A dial is stated once: name, type, default, why.

The comments behind the fields are what `configuration/writing.py` writes beside each dial, so a
comment here is the documentation. Recipes and policies belong to the folders that use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from configuration.faults import ConfigurationError, Fault
from configuration.hooks import HookListener
from configuration.limits import Limits
from configuration.notices import Notices
from configuration.rules import positive
from configuration.serving import Serving
from configuration.sources import Source
from configuration.tables import Words
from evaluation.policy import Policy
from monitoring.settings import Monitoring
from registry.addresses import names_a_user, sayable
from training.recipe import Recipe

NAME = Words(  # becomes a model's name in MLflow and a file's
    re.compile(r"[a-z0-9][a-z0-9_-]{0,62}"),
    "a letter or digit, then at most 62 of a-z, 0-9, - and _",
)


@dataclass(frozen=True, slots=True)
class Measuring:
    """How a pair is measured on a trial server."""

    max_tokens: int = 96  # longest answer, in tokens
    temperatures: tuple[float, ...] = (0.0,)  # each prompt is asked at each; 0 decodes greedily
    concurrency: int = 4  # requests at once while acceptance is measured
    speed_concurrencies: tuple[int, ...] = (1,)  # requests at once while speed is, at each of them
    time_ngram: bool = True  # time the free n-gram draft as well; no rule of the gate asks for it
    tokenizer: Literal["words", "code"] = "words"  # of ROUGE-L; code counts symbols and case too
    consecutive_errors: int = 4  # failures in a row of one request that end a measurement

    def __post_init__(self) -> None:
        positive(self, "max_tokens", "concurrency", "consecutive_errors")
        _once(self, "temperatures", lambda value: 0 <= value <= 2, "0 to 2")
        _once(self, "speed_concurrencies", lambda value: value >= 1, "1 or more")


def _once(record: Any, name: str, right: Callable[[float], bool], wanted: str) -> None:
    given = getattr(record, name)
    if not given or len(set(given)) < len(given) or not all(map(right, given)):
        raise ValueError(f"got {name} = {list(given)}, wanted one or more of {wanted}, each once")


@dataclass(frozen=True, slots=True)
class Pairing:
    """One line: which target to watch, and how its drafts are made, gated and served."""

    target: str = ""  # the model folder that `paceline release` announces when it is given none
    draft: Literal["head", "ngram", "none"] = "head"  # kind of draft that is made for a release
    initial_draft: str = ""  # folder of the first release's draft; empty: it is made as well
    draft_len: int = 4  # K: tokens drafted per round; arms are only compared at the same K
    on_release: Literal["with_pair", "at_once"] = "with_pair"  # what a release waits for: its draft
    max_wait_hours: float = 24.0  # at most; then it goes live with stand_in, its draft follows
    stand_in: Literal["ngram", "none"] = "ngram"  # drafts where no draft is made yet
    train_prompts: Path = Path("prompts/train.jsonl")  # what the draft learns to follow
    evaluation_prompts: Path = Path("prompts/evaluation.jsonl")  # never trained on
    sources: tuple[Source, ...] = ()  # releases come from; tables, [[pairings.NAME.sources]]
    servers: tuple[str, ...] = ()  # URLs of the servers that serve it, to ask and to steer
    adapters: Mapping[Annotated[str, NAME], Path] = field(default_factory=dict)  # LoRA, by name
    measurement: Measuring = field(default_factory=Measuring)
    recipe: Recipe = field(default_factory=Recipe)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 1 <= self.draft_len <= 16:
            raise ValueError(f"got draft_len = {self.draft_len}, wanted 1 to 16")
        if not 0 <= self.max_wait_hours <= 24 * 365:
            raise ValueError(f"got max_wait_hours = {self.max_wait_hours}, wanted 0 to 8760")
        for server in self.servers:
            if not server.startswith(("http://", "https://")) or names_a_user(server):
                raise ValueError(
                    f"got servers with {sayable(server)!r}, wanted http(s) URLs without a name or "
                    "a password"
                )
        for source in self.sources:
            if self.sources.count(source) > 1:
                raise ValueError(f"got sources with {source.place!r} twice, wanted each once")
        loads = self.measurement.speed_concurrencies
        if not set(self.policy.must_gain) <= set(loads):  # else no verdict could be a yes
            raise ValueError(
                f"got policy.must_gain = {list(self.policy.must_gain)} and "
                f"measurement.speed_concurrencies = {list(loads)}, wanted the first among the "
                "second, since a gain that nobody measures is never found"
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """All of one home folder's configuration."""

    home: Path  # where everything embedded lives; relative paths start here
    registry: str = ""  # MLflow's URL, or sqlite:///… that no server uses; empty: the home's own
    prefect: str = ""  # URL of Prefect's API, with its /api at the end; empty: the home's own
    serving: Serving = field(default_factory=Serving)
    monitoring: Monitoring = field(default_factory=Monitoring)
    notices: Notices = field(default_factory=Notices)
    hooks: HookListener = field(default_factory=HookListener)
    pairings: Mapping[Annotated[str, NAME], Pairing] = field(default_factory=dict)
    # Secrets: from the environment, or from files that it names.
    registry_token: str | None = field(default=None, repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the server's tenants
    admin_keys: tuple[str, ...] = field(default=(), repr=False)  # of the server's admin side
    hub_token: str | None = field(default=None, repr=False)  # for repositories that are not public
    hook_secret: str | None = field(default=None, repr=False)  # signs the registry's webhook
    notice_secret: str | None = field(default=None, repr=False)  # signs what notices.webhook gets
    alert_token: str | None = field(default=None, repr=False)  # of Alertmanager, at /hooks/alerts
    scrape_token: str | None = field(default=None, repr=False)  # of replicas that monitoring reads
    prometheus_token: str | None = field(default=None, repr=False)  # of Prometheus' query API

    def __post_init__(self) -> None:
        for name, line in self.pairings.items():
            if not NAME.pattern.fullmatch(name):
                raise ValueError(f"got the pairing name {name!r}, wanted {NAME.wanted}")
            if name in line.adapters:
                raise ValueError(
                    f"got an adapter named {name!r} as its pairing is: clients ask for either by "
                    "name, so give it another"
                )
        if names_a_user(self.registry):
            raise ValueError(
                f"got registry = {sayable(self.registry)!r} with a name or a password, wanted it "
                "without what is before the @, which would be shown (a token has its place in "
                "PACELINE_REGISTRY_TOKEN, or in a file that PACELINE_REGISTRY_TOKEN_FILE names)"
            )
        if self.registry and not self.registry.startswith(("http://", "https://", "sqlite:///")):
            raise ValueError(
                f"got registry = {self.registry!r}, wanted an http(s) URL, "
                "sqlite:///path/to/mlflow.db or nothing"
            )
        if self.prefect and not self.prefect.startswith(("http://", "https://")):
            raise ValueError(f"got prefect = {self.prefect!r}, wanted an http(s) URL or nothing")

    def pairing(self, name: str | None = None) -> Pairing:
        """The pairing of that name, or the only one; ConfigurationError where there is none."""
        if name is None and len(self.pairings) == 1:
            return next(iter(self.pairings.values()))
        if name is not None and name in self.pairings:
            return self.pairings[name]
        file = self.home / "paceline.toml"
        if self.pairings:
            got = "no name" if name is None else repr(name)
            wanted = f"a configured pairing ({', '.join(sorted(self.pairings))})"
            fault = Fault("pairings", got, wanted, "name one of them")
        else:
            got = "none" if file.exists() else "none (the file is not there)"
            wanted = "a pairing" if name is None else f"the pairing {name!r}"
            do = f"write it with `paceline init {name or 'NAME'} TARGET`"
            fault = Fault("pairings", got, wanted, do)
        raise ConfigurationError(str(file), [fault])

    @property
    def operator_headers(self) -> dict[str, str]:
        """What commands of this home show a server, which may want a key for its admin side."""
        return {"authorization": f"Bearer {self.admin_keys[0]}"} if self.admin_keys else {}

    @property
    def registry_url(self) -> str:
        """Where MLflow's client finds the registry; the embedded database where none is named."""
        return self.registry or f"sqlite:///{self.home.absolute() / 'mlflow' / 'mlflow.db'}"

    def path(self, path: Path | str) -> Path:
        """A configured path, taken from the home folder where it is relative."""
        return (self.home / Path(path).expanduser()).absolute()
