"""Which tokens of a stream go out together.

Pure. As they come, a chunk holds the tokens of one round: its size tells whoever watches the
network how many drafted tokens were accepted, which has been shown to identify prompts. With a
fixed number of tokens in each chunk, sizes say nothing but how long the text is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.choices import Piece


@dataclass
class Coalescing:
    """The chunks of one choice."""

    tokens: int  # in each chunk but the last; 0: as they come
    _waiting: list[Piece] = field(default_factory=list)

    def take(self, pieces: Sequence[Piece], *, last: bool) -> list[Piece]:
        """What can be sent now that `pieces` have come. `last`: nothing comes after them."""
        self._waiting += pieces
        if not self.tokens:
            whole, self._waiting = Piece.joined(self._waiting), []
            return [whole] if whole.text or whole.entries else []
        ready = []
        while sum(piece.tokens for piece in self._waiting) >= self.tokens:
            # Sent even without text: what is left out would say as much as what is not.
            ready.append(Piece.joined(self._waiting[: self.tokens]))
            del self._waiting[: self.tokens]
        if last and self._waiting:
            ready.append(Piece.joined(self._waiting))
            self._waiting = []
        return ready
