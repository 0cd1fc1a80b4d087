"""Several LoRA adapters on one model at once, chosen per row of a batch.

Knows the model's linear layers and which adapter each row of the next forward wants; knows nothing
of folders, tokens or caches. Hu et al. 2021 (arXiv 2106.09685). Rows of different adapters share
one product, as in Punica (Chen et al. 2023, arXiv 2310.18547), the other way round: the adapters
of the batch lie side by side as one of their ranks' sum, and each row keeps its own part of the
inner result. Gathering each row's matrices took 50 to 80 us a layer of 576 by 1,536 where this
takes 15 (4 rows, 3 adapters of rank 16, one thread).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from speculation.lora_folder import Lora

RECENT = 8  # choices of rows whose layers are kept ready: running ones, and prompts between them

Patch = tuple[nn.Linear, Callable[[Tensor], Tensor]]


@dataclass(slots=True)
class Site:
    """One adapted linear layer and the matrices of all adapters, in the order they are loaded."""

    linear: nn.Linear
    down: Tensor  # [adapters, r, in]; what an adapter lacks of the greatest rank is zeros
    up: Tensor  # [adapters, r, out], the scaling multiplied in
    adapted: frozenset[int]  # the adapters that have a part here


class Adapters:
    """The adapters of `model`. Loading and unloading must not run while a forward does.

    Outside of `chosen` the model is untouched: rows without an adapter cost nothing.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._loaded: dict[str, dict[str, Lora]] = {}
        self._sites: list[Site] = []
        self._recent: OrderedDict[tuple[int | None, ...], list[Patch]] = OrderedDict()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    def add(self, name: str, parts: Mapping[str, Lora]) -> None:
        """Serve `parts` (by module name) as `name`. Raises ValueError for a name that is taken."""
        if not name or name in self._loaded:
            raise ValueError(f"adapter {name!r}: wanted a name that is not taken")
        self._restack({**self._loaded, name: dict(parts)})

    def remove(self, name: str) -> None:
        """Forget `name`. Raises ValueError for an unknown one."""
        if name not in self._loaded:
            raise ValueError(f"adapter {name!r}: wanted one of {list(self._loaded)}")
        self._restack({kept: parts for kept, parts in self._loaded.items() if kept != name})

    def _restack(self, loaded: dict[str, dict[str, Lora]]) -> None:
        modules = dict(self._model.named_modules())
        sites = []
        for path in sorted({path for parts in loaded.values() for path in parts}):
            linear = modules[path]
            assert isinstance(linear, nn.Linear)
            here = {
                number: parts[path] for number, parts in enumerate(loaded.values()) if path in parts
            }
            rank = max(part.down.shape[0] for part in here.values())
            device = linear.weight.device
            # A CPU multiplies small float32 matrices five times faster than bfloat16 ones.
            dtype = torch.float32 if device.type == "cpu" else linear.weight.dtype
            shape = (len(loaded), rank)
            down = torch.zeros((*shape, linear.in_features), dtype=dtype, device=device)
            up = torch.zeros((*shape, linear.out_features), dtype=dtype, device=device)
            for number, part in here.items():
                own = part.down.shape[0]
                down[number, :own] = part.down.to(down)
                up[number, :own] = part.up.T.to(up)
            sites.append(Site(linear, down, up, frozenset(here)))
        self._loaded, self._sites = loaded, sites
        self._recent.clear()

    def numbers(self, names: Sequence[str | None]) -> list[int | None]:
        """Each row's adapter by number. Raises ValueError for an unknown name."""
        known: dict[str | None, int | None] = {None: None}
        known.update({name: number for number, name in enumerate(self._loaded)})
        for name in names:
            if name not in known:
                raise ValueError(f"adapter {name!r}: wanted one of {list(self._loaded)}")
        return [known[name] for name in names]

    @contextmanager
    def chosen(self, names: Sequence[str | None]) -> Iterator[None]:
        """Let row i of what the model computes inside be of adapter `names[i]`."""
        patches = self._patches(tuple(self.numbers(names)))
        try:
            for linear, forward in patches:
                # An entry of the instance goes before the class's method, without the price that
                # a hook puts on every call of the module.
                linear.__dict__["forward"] = forward
            yield
        finally:
            for linear, _ in patches:
                linear.__dict__.pop("forward", None)

    def _patches(self, numbers: tuple[int | None, ...]) -> list[Patch]:
        """What the adapted layers compute for these rows: round after round mostly the same."""
        if numbers not in self._recent:
            used = sorted({number for number in numbers if number is not None})
            self._recent[numbers] = [
                (site.linear, adapted(site, numbers, used))
                for site in self._sites
                if site.adapted.intersection(used)
            ]
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(numbers)
        return self._recent[numbers]


def adapted(
    site: Site, numbers: Sequence[int | None], used: Sequence[int]
) -> Callable[[Tensor], Tensor]:
    """The linear layer's forward over [B, T, in] or [B T, in], each row's adapter added."""
    linear, rank = site.linear, site.down.shape[1]
    first, last = used[0], used[-1]
    beside: Sequence[int] = range(first, last + 1)
    if len(beside) > 2 * len(used):  # a few of many: their copies are cheaper than all products
        beside = used
        chosen = list(used)
        down, up = site.down[chosen].flatten(0, 1), site.up[chosen].flatten(0, 1)
    else:
        span = slice(first, last + 1)
        down, up = site.down[span].flatten(0, 1), site.up[span].flatten(0, 1)
    own = None
    if set(numbers) != set(beside) or len(beside) > 1:
        own = torch.tensor(
            [[float(number == one) for one in beside for _ in range(rank)] for number in numbers],
            dtype=down.dtype,
            device=down.device,
        )[:, None]  # [B, 1, adapters beside each other x r]

    def forward(x: Tensor) -> Tensor:
        plain = nn.functional.linear(x, linear.weight, linear.bias)
        low = nn.functional.linear(x.to(down.dtype), down)
        if own is not None:  # by row, also where a model flattened [B, T]
            low = (low.view(len(numbers), -1, low.shape[-1]) * own).view_as(low)
        return plain + (low @ up).to(plain.dtype)

    return forward
