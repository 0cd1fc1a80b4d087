"""Which of the target's layers are read, by whom: drafts that read different ones share a forward.

Knows numbers of layers and where each reader's states lie side by side; nothing of who reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from speculation.commit import Observer


class Read:
    """The layouts (layers in order) that the readers of one engine want; empty ones want nothing.

    Equal layouts are read once. Of two that differ each is whole, so that every reader gets a view.
    """

    def __init__(self, layouts: Iterable[Sequence[int]]) -> None:
        self._starts: dict[tuple[int, ...], int] = {}
        layers: list[int] = []
        for layout in filter(None, map(tuple, layouts)):
            if layout not in self._starts:
                self._starts[layout] = len(layers)
                layers += layout
        self.layers = tuple(layers)  # L

    def part(self, layout: Sequence[int], states: Tensor) -> Tensor:
        """Of `states` [T, LH] what the reader of `layout` wants, [T, len(layout) H]."""
        start, width = self._starts[tuple(layout)], states.shape[-1] // len(self.layers)
        return states[..., start * width : (start + len(layout)) * width]

    def only(self, layout: Sequence[int], observer: Observer) -> Observer:
        """`observer` told of the states of `layout` only."""

        def told(request_id: str, states: Tensor | None, logits: Tensor) -> None:
            part = None if states is None else self.part(layout, states)
            observer(request_id, part, logits)

        return told
