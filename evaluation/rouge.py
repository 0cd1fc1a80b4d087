"""ROUGE-L that is right for any script.

rouge_score's own tokenizer keeps a-z and 0-9 only: Chinese or Arabic text has no tokens there and
scores 0, and so does a perfect copy of it. Ours splits by Unicode:

- scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) and Korean
  syllables: one token a character, with the marks that belong to it;
- every other script: one token a run of letters, marks, digits and underscores, so that Devanagari
  and Arabic vowel signs stay with their word;
- `words` drops punctuation and white space; `code` keeps each symbol as a token, because `==` and
  `!=` are not the same program.

Text is compared after NFKC and case folding (full width, ligatures and compatibility forms are
equal), `code` without folding. Knows strings; knows nothing of where they come from.
Source: Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004, section 3 (sentence-level
ROUGE-L, F with equal weights).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

TOKENIZERS = ("words", "code")

# Letters of these begin the names that Unicode gives their characters.
_ALONE = (
    "CJK ",
    "HIRAGANA ",
    "KATAKANA",
    "HANGUL ",
    "BOPOMOFO ",
    "THAI ",
    "LAO ",
    "KHMER ",
    "MYANMAR ",
    "TIBETAN ",
    "YI ",
)


def tokens(text: str, *, tokenizer: str = "words") -> list[str]:
    """The tokens of `text`. Raises ValueError for an unknown tokenizer."""
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"tokenizer {tokenizer!r}: wanted one of {', '.join(TOKENIZERS)}")
    code = tokenizer == "code"
    text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    open_word = False  # whether the last token may grow
    for character in text if code else text.casefold():
        kind = unicodedata.category(character)
        if kind == "Cf":  # joiners and direction marks: inside a word, no part of it
            continue
        if kind[0] == "M" and open_word:
            found[-1] += character
        elif kind[0] in "LMN" or kind == "Pc":
            alone = _stands_alone(character)
            # A mark may still join a character that stands alone; a letter may not.
            if open_word and not alone and not _stands_alone(found[-1][0]):
                found[-1] += character
            else:
                found.append(character)
            open_word = True
        else:
            if kind == "So" or (code and kind[0] in "PS"):
                found.append(character)
            open_word = False
    return found


def rouge_l(prediction: str, reference: str, *, tokenizer: str = "words") -> float:
    """ROUGE-L F of two texts, 0 to 1. Two texts without any token are equal: 1."""
    return scores([prediction], [reference], tokenizer=tokenizer)[0]


def scores(
    predictions: Sequence[str], references: Sequence[str], *, tokenizer: str = "words"
) -> list[float]:
    """ROUGE-L F of each pair of texts."""
    from rouge_score.rouge_scorer import RougeScorer  # a second: it brings nltk

    class Splitting:
        def tokenize(self, text: str) -> list[str]:
            return tokens(text, tokenizer=tokenizer)

    scorer = RougeScorer(["rougeL"], tokenizer=Splitting())
    return [
        1.0
        if tokens(prediction, tokenizer=tokenizer) == tokens(reference, tokenizer=tokenizer)
        else float(scorer.score(reference, prediction)["rougeL"].fmeasure)
        for prediction, reference in zip(predictions, references, strict=True)
    ]


def to_the_letter(prediction: str, reference: str) -> float:
    """ROUGE-L F of two texts of one model, of whose differences a tokenizer counts none: case,
    symbols and each white space are tokens here, and nothing is normalised."""
    from rouge_score.rouge_scorer import RougeScorer

    class Splitting:
        def tokenize(self, text: str) -> list[str]:
            return re.findall(r"\w+|\W", text)

    scorer = RougeScorer(["rougeL"], tokenizer=Splitting())
    return float(scorer.score(reference, prediction)["rougeL"].fmeasure)


@cache
def _stands_alone(character: str) -> bool:
    return unicodedata.name(character, "").startswith(_ALONE)


def rouge_l_metric() -> Any:
    """The metric of metrics/rouge_l.py. Needs no network and leaves no file."""
    from evaluation.metrics.rouge_l import RougeL  # three seconds and 300 MB

    with TemporaryDirectory() as folder:  # it makes a folder there; texts stay in memory
        return RougeL(keep_in_memory=True, cache_dir=folder)
