"""A tokenizer as content: its canonical form, its token table, its special tokens, its templates.

Reads the folder's files with the `tokenizers` library, which runs no code of the folder. Two
spellings of the same tokenizer (merges as strings or as pairs, added tokens in one file or the
other, special tokens as text or as records) give the same values here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from registry.errors import FolderError
from registry.folders import confined, json_of

ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
DEFAULT_TEMPLATE = "default"


def tokenizer_of(folder: Path) -> Tokenizer:
    """The folder's tokenizer with the added tokens of every file. `FolderError` when there is none.

    Padding and truncation are off: they are how a batch was last encoded, not what the tokens are.
    """
    path = confined(folder, "tokenizer.json")
    if not path.is_file():
        raise FolderError(
            f"{folder}: has no tokenizer.json. Load it with AutoTokenizer and save_pretrained it: "
            "transformers writes that file for every fast tokenizer"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a file it cannot read is a plain Exception, or a Rust panic
        raise FolderError(f"{path}: is no tokenizer that `tokenizers` can load: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    held = tokenizer.get_added_tokens_decoder()
    for token_id, token in sorted(_added_elsewhere(folder).items(), key=lambda item: item[0]):
        if token_id not in held:  # it may be an ordinary token there, which splits otherwise
            tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token.content) != token_id:
            raise FolderError(
                f"{folder}: tokenizer_config.json puts {token.content!r} at {token_id}, "
                f"tokenizer.json at {tokenizer.token_to_id(token.content)}"
            )
    return tokenizer


def _added_elsewhere(folder: Path) -> dict[int, AddedToken]:
    config = json_of(folder, "tokenizer_config.json") or {}
    added: dict[int, AddedToken] = {}
    for content, token_id in (json_of(folder, "added_tokens.json") or {}).items():
        added[int(token_id)] = AddedToken(content, normalized=False)
    for token_id, token in (config.get("added_tokens_decoder") or {}).items():
        flags = {flag: bool(token[flag]) for flag in TOKEN_FLAGS if flag in token}
        added[int(token_id)] = AddedToken(token["content"], **flags)
    return added


def canonical(tokenizer: Tokenizer) -> Any:
    """The tokenizer as plain data in which every spelling of it is the same.

    What is off or empty is left out, so that an option a later `tokenizers` adds, off by default,
    does not change the digest of everything that exists.
    """
    return _without_defaults(json.loads(tokenizer.to_str()))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _without_defaults(inner) for key, inner in value.items()}
        return {
            key: inner for key, inner in kept.items() if inner is not None and inner is not False
        }
    return [_without_defaults(inner) for inner in value] if isinstance(value, list) else value


def token_table(tokenizer: Tokenizer) -> dict[int, str]:
    """Token by id, added tokens among them."""
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def special_tokens(folder: Path) -> dict[str, str]:
    """The text of each special token by its role (`bos_token`, ...), as far as the folder says."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        written = json_of(folder, name) or {}
        for role in ROLES:
            token = written.get(role)
            content = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(content, str):
                found.setdefault(role, content)
    return found


def chat_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name, wherever they are kept. A file of its own wins."""
    found: dict[str, str] = {}
    written = (json_of(folder, "tokenizer_config.json") or {}).get("chat_template")
    if isinstance(written, str):
        found[DEFAULT_TEMPLATE] = written
    elif isinstance(written, list):
        found |= {entry["name"]: entry["template"] for entry in written}
    legacy = (json_of(folder, "chat_template.json") or {}).get("chat_template")
    if isinstance(legacy, str):
        found[DEFAULT_TEMPLATE] = legacy
    alone = confined(folder, "chat_template.jinja")
    if alone.is_file():
        found[DEFAULT_TEMPLATE] = alone.read_text(encoding="utf-8")
    more = confined(folder, "additional_chat_templates")
    if more.is_dir():
        for path in sorted(more.glob("*.jinja")):
            found[path.stem] = confined(more, path.name).read_text(encoding="utf-8")
    return found
