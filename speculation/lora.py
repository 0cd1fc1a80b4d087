"""Several LoRA adapters on one model at once, chosen per row of a batch.

Knows the model's linear layers and which adapter each row of the next forward wants; knows nothing
of folders, tokens or caches. Hu et al. 2021 (arXiv 2106.09685); rows of different adapters share
one batched product over stacked matrices, as in Chen et al. 2023 (Punica, arXiv 2310.18547).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from speculation.lora_folder import Lora


@dataclass(slots=True)
class Site:
    """One adapted linear layer and the matrices of all adapters, number 0 being none."""

    linear: nn.Linear
    down: Tensor  # [adapters + 1, r, in]; ranks below r are filled with zeros
    up: Tensor  # [adapters + 1, out, r]
    adapted: frozenset[int]  # the adapters that have a part here


class Adapters:
    """The adapters of `model`. Loading and unloading must not run while a forward does.

    Outside of `chosen` the model is untouched: rows without an adapter cost nothing.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._loaded: dict[str, dict[str, Lora]] = {}
        self._sites: list[Site] = []
        self._numbers: dict[str, int] = {}

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
                number: parts[path]
                for number, parts in enumerate(loaded.values(), start=1)
                if path in parts
            }
            rank = max(part.down.shape[0] for part in here.values())
            down = linear.weight.new_zeros(len(loaded) + 1, rank, linear.in_features)
            up = linear.weight.new_zeros(len(loaded) + 1, linear.out_features, rank)
            for number, part in here.items():
                own = part.down.shape[0]
                down[number, :own] = part.down.to(down)
                up[number, :, :own] = part.up.to(up)
            sites.append(Site(linear, down, up, frozenset(here)))
        self._loaded, self._sites = loaded, sites
        self._numbers = {name: number for number, name in enumerate(loaded, start=1)}

    def numbers(self, names: Sequence[str | None]) -> list[int]:
        """Each row's adapter number, 0 for none. Raises ValueError for an unknown name."""
        unknown = sorted({name for name in names if name is not None} - set(self._numbers))
        if unknown:
            raise ValueError(f"adapter {unknown[0]!r}: wanted one of {list(self._loaded)}")
        return [0 if name is None else self._numbers[name] for name in names]

    @contextmanager
    def chosen(self, names: Sequence[str | None]) -> Iterator[None]:
        """Let row i of what the model computes inside be of adapter `names[i]`."""
        numbers = self.numbers(names)
        wanted = set(numbers) - {0}
        patched = [site for site in self._sites if wanted & site.adapted]
        one = numbers[0] if len(set(numbers)) == 1 else None
        try:
            for site in patched:
                # An attribute of the instance goes before the class's method, without the price
                # that a hook puts on every call of the module.
                site.linear.forward = adapted(site, one, numbers)  # type: ignore[method-assign]
            yield
        finally:
            for site in patched:
                site.linear.__dict__.pop("forward", None)


def adapted(site: Site, one: int | None, numbers: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """The linear layer's forward over [B, T, in] or [B T, in], each row's adapter added."""
    linear = site.linear
    if one is not None:
        down, up = site.down[one], site.up[one]

        def forward(x: Tensor) -> Tensor:
            plain = nn.functional.linear(x, linear.weight, linear.bias)
            low = nn.functional.linear(x, down)
            return plain + nn.functional.linear(low, up)

        return forward
    index = torch.tensor(numbers, device=site.down.device)

    def mixed(x: Tensor) -> Tensor:
        plain = nn.functional.linear(x, linear.weight, linear.bias)
        # Some models flatten [B, T] before a layer.
        by_row = x.view(len(numbers), -1, x.shape[-1])
        low = torch.bmm(by_row, site.down[index].transpose(1, 2))
        return plain + torch.bmm(low, site.up[index].transpose(1, 2)).view_as(plain)

    return mixed
