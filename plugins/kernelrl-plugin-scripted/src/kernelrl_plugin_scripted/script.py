"""Reads a file of scripted replies."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import load_yaml
from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_scripted.config import ScriptedReply

__all__ = ["read_script"]

_KEYS = tuple(field.name for field in attrs.fields(ScriptedReply))


def read_script(path: Path) -> tuple[ScriptedReply, ...]:
    """The replies of a file.

    Raises:
        UsageError: the file cannot be read, or an entry is not a reply; the message has the file and the entry.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"policy.path: cannot read {path}: {error}") from error
    replies = tuple(_reply(entry, where) for entry, where in _entries(path, text))
    if not replies:
        raise UsageError(f"policy.path: {path} has no replies")
    return replies


def _entries(path: Path, text: str) -> Iterator[tuple[Any, str]]:
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                try:
                    yield json.loads(line), f"{path}:{number}"
                except ValueError as error:
                    raise UsageError(f"{path}:{number}: not JSON: {error}") from error
        return
    try:
        entries = json.loads(text) if path.suffix == ".json" else load_yaml(text, path)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise UsageError(f"{path}: must be a list of replies")
    for number, entry in enumerate(entries, start=1):
        yield entry, f"{path}: entry {number}"


def _reply(entry: Any, where: str) -> ScriptedReply:
    if isinstance(entry, str):
        return ScriptedReply(entry)
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: must be a string or an object with the key `reply`")
    for key in entry:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            raise UsageError(f"{where}: unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    reply, turn = entry.get("reply"), entry.get("turn")
    when, logprobs = entry.get("when", []), entry.get("logprobs", [])
    if not isinstance(reply, str):
        raise UsageError(f"{where}: `reply` must be a string")
    if turn is not None and (not isinstance(turn, int) or isinstance(turn, bool) or turn < 1):
        raise UsageError(f"{where}: `turn` must be an integer from 1")
    if not isinstance(when, str) and not (isinstance(when, list) and all(isinstance(text, str) for text in when)):
        raise UsageError(f"{where}: `when` must be a string or a list of strings")
    if not isinstance(logprobs, list) or not all(isinstance(value, int | float) and value <= 0 for value in logprobs):
        raise UsageError(f"{where}: `logprobs` must be a list of numbers <= 0")
    return ScriptedReply(reply, when if isinstance(when, str) else tuple(when), turn, tuple(map(float, logprobs)))
