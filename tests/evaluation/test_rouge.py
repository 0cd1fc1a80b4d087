from __future__ import annotations

import socket

import pytest

from evaluation.rouge import rouge_l, rouge_l_metric, scores, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's mat.", ["the", "cat", "s", "mat"]),
        ("我喜欢 GPU 编程。", ["我", "喜", "欢", "gpu", "编", "程"]),
        ("カタカナとひらがな", list("カタカナとひらがな")),
        ("한국어 모델", ["한", "국", "어", "모", "델"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("اَلسَّلَامُ عليكم", ["اَلسَّلَامُ", "عليكم"]),
        ("می‌خواهم", ["میخواهم"]),  # the joiner inside is no part of it
        ("ที่นี่", ["ที่", "นี่"]),
        ("Straße ＦＵＬＬ", ["strasse", "full"]),
        ("naïve café", ["naïve", "café"]),
        ("ok 👍", ["ok", "👍"]),
        ("", []),
        ("?!  \n", []),
    ],
)
def test_text_is_split_as_its_script_is_written(text: str, expected: list[str]) -> None:
    import unicodedata

    assert tokens(text) == [unicodedata.normalize("NFKC", token) for token in expected]


def test_code_keeps_symbols_and_case() -> None:
    assert tokens("if a_b!=C:", tokenizer="code") == ["if", "a_b", "!", "=", "C", ":"]
    assert rouge_l("a == b", "a != b") == 1.0
    assert rouge_l("a == b", "a != b", tokenizer="code") == pytest.approx(0.75)


def test_a_chinese_example_has_the_value_worked_out_by_hand() -> None:
    # 我喜欢猫 against 我不喜欢狗: in common 我喜欢, 3 of 4 and 3 of 5: F = 2 * .75 * .6 / 1.35
    assert rouge_l("我喜欢猫", "我不喜欢狗") == pytest.approx(2 / 3)


@pytest.mark.parametrize("text", ["我喜欢猫", "مرحبا", "नमस्ते", "привет", "👍", "...", ""])
def test_a_perfect_copy_scores_one_in_any_script(text: str) -> None:
    assert rouge_l(text, text) == 1.0


def test_an_empty_answer_to_a_reference_scores_zero() -> None:
    assert rouge_l("", "something") == 0.0


def test_english_scores_as_rouge_score_does_by_default() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    texts = ("The quick brown fox jumps over the lazy dog", "The quick brown dog jumps on a log.")
    theirs = RougeScorer(["rougeL"]).score(texts[1], texts[0])["rougeL"].fmeasure
    assert rouge_l(*texts) == pytest.approx(theirs)


def test_an_unknown_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'chars': wanted one of words, code"):
        tokens("x", tokenizer="chars")


def test_the_evaluate_metric_agrees_and_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the metric opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    predictions, references = ["我喜欢猫", "a b"], ["我不喜欢狗", "a b"]
    result = rouge_l_metric().compute(predictions=predictions, references=references)
    assert result["scores"] == pytest.approx(scores(predictions, references))
    assert result["rouge_l"] == pytest.approx((2 / 3 + 1) / 2)
