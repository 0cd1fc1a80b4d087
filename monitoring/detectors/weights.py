"""What a request is worth as evidence: its tokens go together, so many say little more than some.

Knows counts of tokens and nothing else.
"""

from __future__ import annotations

CORRELATION = 0.10  # of acceptances within a request; G9's figure, judged tokens count accordingly
FULL_WEIGHT_JUDGED = 16  # a request that judged so many counts as one whole request


def information(judged: int) -> float:
    """How many independent tokens `judged` correlated ones are worth (Kish 1965, design effect).

    >>> [round(information(n), 1) for n in (0, 1, 32, 1000)]
    [0.0, 1.0, 7.8, 9.9]
    """
    return judged / (1 + (judged - 1) * CORRELATION) if judged else 0.0


def weight(judged: int) -> float:
    """A request's weight in (0, 1]: one whole from FULL_WEIGHT_JUDGED judged tokens on.

    By information, so that a stream of very short requests alarms no sooner by chance than one of
    long requests; it takes more of them to say the same.
    """
    return min(1.0, information(judged) / information(FULL_WEIGHT_JUDGED))
