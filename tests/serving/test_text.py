"""Between text and token ids: one target's tokenizer, its template and its defaults."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from serving.text import TemplateError, Text, TokenizerError
from serving.token_bytes import UNBOUNDED, longest_token_bytes

WORDS = st.text(alphabet=st.sampled_from([*"abc d\u00e9", "\u00df", "\u65e5", "\U0001f642"]))


@given(words=WORDS)
def test_the_bytes_of_tokens_make_the_bytes_of_their_text(text: Text, words: str) -> None:
    assert b"".join(text.token(one)[1] for one in text.encode(words)) == words.encode()


def test_a_conversation_goes_through_the_targets_own_template(text: Text) -> None:
    ids = text.encode_chat([{"role": "user", "content": "the fox"}])
    wanted = "<|user|>the fox<|end|><|assistant|>"
    assert ids == tuple(text.tokenizer.backend_tokenizer.encode(wanted).ids)


def test_a_template_that_refuses_is_said_so_without_the_messages(text: Text) -> None:
    tokenizer = text.tokenizer.__class__(
        tokenizer_object=text.tokenizer.backend_tokenizer, eos_token="<|end|>"
    )
    strict = Text(tokenizer, frozenset(), {})
    with pytest.raises(TemplateError, match="no chat template"):
        strict.encode_chat([{"role": "user", "content": "secret"}])
    tokenizer.chat_template = "{{ raise_exception('no ' + messages[0]['content']) }}"
    with pytest.raises(TemplateError, match="refuses") as caught:
        strict.encode_chat([{"role": "user", "content": "secret"}])
    assert "secret" not in str(caught.value)


def test_a_template_in_a_file_of_its_own_is_used(target_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(target_folder, tmp_path / "target")
    written = folder / "chat_template.jinja"
    written.write_text("{% for m in messages %}[{{ m['role'] }} {{ m['name'] }}]{% endfor %}")
    stored = json.loads((folder / "tokenizer_config.json").read_text())
    stored.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(stored))
    text = Text.load(folder)
    ids = text.encode_chat([{"role": "user", "content": "the fox", "name": "ada"}])
    assert text.decode(ids) == "[user ada]"


@pytest.mark.parametrize(
    ("stored", "followed"),
    [
        ({"temperature": 0.7, "top_p": 0.9, "top_k": 40}, ["temperature", "top_p", "top_k"]),
        ({"top_p": 0, "min_p": 0.1}, ["min_p"]),
        ({"temperature": -1, "repetition_penalty": 0}, []),
        ({"temperature": True, "top_k": "40", "top_p": [1]}, []),
        ({"top_k": float("inf"), "min_p": float("nan"), "temperature": 1}, ["temperature"]),
    ],
)
def test_defaults_of_a_release_that_cannot_be_done_are_left_out_and_said(
    target_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    stored: dict[str, Any],
    followed: list[str],
) -> None:
    folder = shutil.copytree(target_folder, tmp_path / "target")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, **stored}))
    sampling = Text.load(folder).sampling
    assert list(sampling) == followed
    left_out = [line for line in caplog.messages if "generation_config.json" in line]
    assert len(left_out) == len(stored) - len(followed)


@given(words=WORDS)
def test_a_text_has_as_many_tokens_as_is_known_beforehand(text: Text, words: str) -> None:
    assert text.least_tokens(words) <= len(text.encode(words))


def test_how_much_of_a_text_a_token_may_be_is_known_where_no_text_is_lost(text: Text) -> None:
    rust = text.tokenizer.backend_tokenizer
    longest = max(len(text.token(one)[1]) for one in range(len(text)))
    assert longest <= longest_token_bytes(rust) <= 2 * longest
    composed = Tokenizer.from_str(rust.to_str())
    composed.normalizer = normalizers.Sequence([normalizers.NFC()])
    assert longest_token_bytes(composed) == 3 * longest_token_bytes(rust)
    for lossy in (normalizers.Lowercase(), normalizers.NFKC(), normalizers.Replace("  ", " ")):
        composed.normalizer = normalizers.Sequence([normalizers.NFC(), lossy])
        assert longest_token_bytes(composed) == UNBOUNDED
    words = Tokenizer(models.WordLevel({"the": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    assert longest_token_bytes(words) == UNBOUNDED


def test_a_tokenizer_at_which_the_library_panics_is_refused_as_any_other(
    target_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(target_folder, tmp_path / "toy")
    path = folder / "tokenizer.json"
    panics = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": panics}))
    with pytest.raises(TokenizerError, match="the tokenizer cannot be loaded"):
        Text.load(folder)
