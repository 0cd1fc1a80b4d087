from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import evaluation.rouge
from evaluation.rouge import rouge_l, rouge_l_metric, scores, tokens

METRICS = Path(evaluation.rouge.__file__).with_name("metrics")


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


@pytest.mark.parametrize(
    ("tokenizer", "ours", "theirs", "common", "sizes"),
    [
        ("words", "我喜欢猫", "我不喜欢狗", "我喜欢", (4, 5)),
        ("words", "这个函数返回列表的长度。", "函数返回字典的长度", "函数返回的长度", (11, 9)),
        ("words", "猫が好きです", "犬が好きでした", "が好きで", (6, 7)),
        ("words", "고양이가 좋아요", "강아지가 좋아요", "가좋아요", (7, 7)),
        ("words", "أحب القطط كثيرا", "أحب الكلاب كثيرا جدا", ["أحب", "كثيرا"], (3, 4)),
        (
            "words",
            "मुझे बिल्ली पसंद है",
            "मुझे कुत्ता बहुत पसंद है",
            ["मुझे", "पसंद", "है"],
            (4, 5),
        ),
        ("words", "GPU 加速 is fast", "GPU加速 was fast", ["gpu", "加", "速", "fast"], (5, 5)),
        (
            "words",
            "用 vLLM 部署模型 v2",
            "用 SGLang 部署 模型 v2",
            ["用", *"部署模型", "v2"],
            (7, 7),
        ),
        (
            "code",
            "if x == 1: return y",
            "if x != 1: return z",
            ["if", "x", "=", "1", ":", "return"],
            (8, 8),
        ),
        ("code", "Total+=1", "total += 1", ["+", "=", "1"], (4, 4)),
    ],
    ids=["zh", "zh-longer", "ja", "ko", "ar", "hi", "mixed", "mixed-names", "code", "code-case"],
)
def test_the_value_is_the_one_worked_out_by_hand(
    tokenizer: str, ours: str, theirs: str, common: list[str] | str, sizes: tuple[int, int]
) -> None:
    """F = 2PR / (P + R) with P = L / n and R = L / m is 2L / (n + m)."""
    assert (len(tokens(ours, tokenizer=tokenizer)), len(tokens(theirs, tokenizer=tokenizer))) == (
        sizes
    )
    expected = 2 * len(common) / sum(sizes)
    assert rouge_l(ours, theirs, tokenizer=tokenizer) == pytest.approx(expected)


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


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and the library's files in a folder of the test's."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the metric asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", tmp_path / "modules")


@pytest.mark.usefixtures("offline")
def test_the_evaluate_metric_agrees_and_needs_no_network() -> None:
    predictions, references = ["我喜欢猫", "a b"], ["我不喜欢狗", "a b"]
    result = rouge_l_metric().compute(predictions=predictions, references=references)
    assert result["scores"] == pytest.approx(scores(predictions, references))
    assert result["rouge_l"] == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.usefixtures("offline")
def test_the_metrics_load_by_their_path_without_a_network(tmp_path: Path) -> None:
    import evaluate

    def load(name: str) -> Any:
        path = METRICS / f"{name}.py"
        return evaluate.load(str(path), keep_in_memory=True, cache_dir=str(tmp_path / "cache"))

    texts = {"predictions": ["我喜欢猫", "a == b"], "references": ["我不喜欢狗", "a != b"]}
    rouge = load("rouge_l").compute(**texts, tokenizer="code")
    assert rouge["scores"] == pytest.approx([2 / 3, 0.75])
    parity = load("text_parity").compute(**texts, tokenizer="code")
    assert parity == {"exact_match": 0.0, "first_divergence": [1, 1]}
    same = load("text_parity").compute(predictions=["好", "好"], references=["好", "好。"])
    assert same == {"exact_match": 0.5, "first_divergence": [-1, -1]}
