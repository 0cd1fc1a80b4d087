"""A tokenizer as content: its canonical form, its token table, its special tokens, its templates.

Reads the folder's files with the `tokenizers` library, which runs no code of the folder. Two
spellings of the same tokenizer (merges as strings or as pairs, added tokens in one file or the
other, special tokens as text or as records) give the same values here.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from registry.errors import FolderError
from registry.folders import confined, json_of

ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
TOKEN_FILES = (
    "tokenizer.json",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
DEFAULT_TEMPLATE = "default"
DIGITS = re.compile(r"[0-9]{1,9}")
TEMPLATE_LIMIT_BYTES = 10_000_000  # the longest in use is a thousandth of it


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
        where = folder / "added_tokens.json"
        added[_token_id(token_id, where)] = _added(content, {"normalized": False}, where)
    where = folder / "tokenizer_config.json"
    told = config.get("added_tokens_decoder") or {}
    if not isinstance(told, Mapping):
        raise FolderError(f"{where}: added_tokens_decoder: got {told!r:.80}, wanted ids to tokens")
    for token_id, token in told.items():
        if not isinstance(token, Mapping):
            raise FolderError(f"{where}: token {token_id}: got {token!r:.80}, wanted an object")
        flags = {flag: bool(token[flag]) for flag in TOKEN_FLAGS if flag in token}
        added[_token_id(token_id, where)] = _added(token.get("content"), flags, where)
    return added


def _token_id(written: object, where: Path) -> int:
    if type(written) is int or (isinstance(written, str) and DIGITS.fullmatch(written)):
        return int(written)
    raise FolderError(f"{where}: got the token id {written!r:.80}, wanted a whole number")


def _added(content: object, flags: dict[str, bool], where: Path) -> AddedToken:
    if not isinstance(content, str):
        raise FolderError(f"{where}: got the token {content!r:.80}, wanted text")
    try:
        return AddedToken(content, **flags)
    except UnicodeEncodeError as error:
        raise FolderError(f"{where}: the token {content!r:.80} is no text: {error}") from error


def keep_tokens(target: Path, draft: Path) -> None:
    """Put the target's tokens beside a head that was made for it.

    A head works with token ids and loads without them; with them, whoever is asked whether it fits
    another target can compare tokens, not only how many there are.
    """
    for name in TOKEN_FILES:
        path = confined(target, name)
        if path.is_file():
            shutil.copyfile(path, draft / name)


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
        found |= dict(_named(entry, folder) for entry in written)
    legacy = (json_of(folder, "chat_template.json") or {}).get("chat_template")
    if isinstance(legacy, str):
        found[DEFAULT_TEMPLATE] = legacy
    alone = confined(folder, "chat_template.jinja")
    if alone.is_file():
        found[DEFAULT_TEMPLATE] = _template(alone)
    more = confined(folder, "additional_chat_templates")
    if more.is_dir():
        for path in sorted(more.glob("*.jinja")):
            found[path.stem] = _template(confined(more, path.name))
    return found


def _named(entry: object, folder: Path) -> tuple[str, str]:
    pair = (entry.get("name"), entry.get("template")) if isinstance(entry, Mapping) else ()
    if len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str):
        return pair[0], pair[1]
    raise FolderError(
        f"{folder / 'tokenizer_config.json'}: chat_template: got {entry!r:.80}, wanted an object "
        "with a name and a template"
    )


def _template(path: Path) -> str:
    try:
        if path.stat().st_size > TEMPLATE_LIMIT_BYTES:
            raise FolderError(f"{path}: got more than {TEMPLATE_LIMIT_BYTES} bytes of a template")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FolderError(f"{path}: is no UTF-8: {error}") from error
