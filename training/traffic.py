"""Captured requests as prompts again: token ids are turned back into what was asked.

Only what is certain is taken: a request whose ids are exactly what the chat template makes of one
question, with or without a system message. Several turns, raw completions and a question that holds
the template's own tokens are counted and left out. Knows token ids and text; knows no server.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

SYSTEM, USER = "qsystemq7fq", "quserq7fq"  # stand where the texts go; no template alters them
TASK = "traffic"
Form = tuple[tuple[str, str], ...]  # of a template: (role, the text before it) …, ("", the end)


def write_asked(exchanges: Path, target_folder: Path, out: Path) -> Path:
    """The file `out`: a line of JSON for each question of `exchanges`, a file of lines with `id`,
    `ids` and `adapter`; asked twice of one adapter, it is there once. Nobody else may read it.

    A question's id is `traffic-` and a number; the first line says what was left out.
    """
    from training.regenerate import load_tokenizer

    with exchanges.open(encoding="utf-8") as stored:
        prompts, left = asked(load_tokenizer(target_folder), map(json.loads, stored))
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        for prompt in prompts:
            file.write(json.dumps(prompt) + "\n")
    os.replace(beside, out)
    out.with_suffix(".left.json").write_text(json.dumps(left))
    return out


def asked(
    tokenizer: PreTrainedTokenizerBase, exchanges: Iterable[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The questions, in their order, and how many were left out, by the reason."""
    forms = [form for form in (_form(tokenizer, ("user",)), _form(tokenizer, ("system", "user")))]
    special = [token for token in tokenizer.get_added_vocab() if token.strip()]
    left: Counter[str] = Counter()
    known: set[tuple[str | None, str]] = set()
    prompts: list[dict[str, Any]] = []
    for exchange in exchanges:
        messages, why = _messages(tokenizer, exchange["ids"], forms, special)
        if messages is None:
            left[why] += 1
            continue
        question = (exchange["adapter"], json.dumps(messages))
        if question in known:
            left["asked before"] += 1
            continue
        known.add(question)
        prompt = {"id": f"traffic-{len(prompts)}", "messages": messages, "task": TASK}
        if exchange["adapter"] is not None:
            prompt["adapter"] = exchange["adapter"]
        prompts.append(prompt)
    return prompts, dict(left)


def _form(tokenizer: PreTrainedTokenizerBase, roles: Sequence[str]) -> Form | None:
    """What stands before, between and behind the texts of these roles; None where the template
    does not keep them."""
    texts = {"system": SYSTEM, "user": USER}
    messages = [{"role": role, "content": texts[role]} for role in roles]
    try:
        rest = str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )
    except Exception:  # a template may raise whatever it likes, jinja's errors among it
        return None
    form = []
    for role in roles:
        before, found, rest = rest.partition(texts[role])
        if not found:
            return None
        form.append((role, before))
    return (*form, ("", rest))


def _messages(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    forms: Sequence[Form | None],
    special: Sequence[str],
) -> tuple[list[dict[str, str]] | None, str]:
    text = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    for form in forms:
        messages = None if form is None else _read(str(text), form)
        if messages is None:
            continue
        if any(token in message["content"] for message in messages for token in special):
            continue
        again: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        if list(again["input_ids"]) == list(ids):
            return messages, ""
    return None, "not one question under the chat template"


def _read(text: str, form: Form) -> list[dict[str, str]] | None:
    """The texts of a form's roles; None where it is not of that form."""
    (first, opening), *between, (_, ending) = form
    if not text.startswith(opening) or not text.endswith(ending):
        return None
    rest, role = text[len(opening) : len(text) - len(ending)], first
    messages = []
    for following, before in between:
        said, found, rest = rest.partition(before)
        if not found:
            return None
        messages.append({"role": role, "content": said})
        role = following
    messages.append({"role": role, "content": rest})
    return messages if all(message["content"].strip() for message in messages) else None
