"""Conversations as a file for supervised fine-tuning, written from a run and read as demonstrations.

A file holds one conversation per line, `{"messages": [{"role": …, "content": …}, …]}`, whose last message is the reply
to learn: the form that most tools for supervised fine-tuning read. Kernels in it are text and are never run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelrl_core.errors import UsageError
from kernelrl_core.storage import disk_error, write_atomically
from kernelrl_core.types import Message, Outcome, WarmStartExample
from kernelrl_core.types.serialization import from_json, to_json

__all__ = ["read_conversations", "write_conversations"]

_ROLES = ("system", "user", "assistant")


def write_conversations(path: Path, conversations: tuple[dict[str, Any], ...]) -> None:
    """Write one conversation per line.

    Raises:
        KernelRLError: the file cannot be written.
    """
    try:
        write_atomically(path, "".join(json.dumps(entry) + "\n" for entry in conversations))
    except OSError as error:
        raise disk_error(path, error) from error


def read_conversations(path: Path) -> list[WarmStartExample]:
    """The conversations of a file as demonstrations.

    Beside `messages` a line may say `weight` (relative share, 1 where it is not said) and `task_id`; what else it says
    is not read.

    Raises:
        UsageError: the file cannot be read, or a line is not a conversation; names file and line.
    """
    try:
        # Not `splitlines`: other programs write line separators of Unicode into texts as they are.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"demonstrations.file: cannot read {path}: {error}") from error
    found = [_example(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"demonstrations.file: {path} holds no conversations")
    return found


def _example(line: str, where: str) -> WarmStartExample:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    messages = list(_messages(entry.get("messages") if isinstance(entry, dict) else None, where))
    if messages[-1].role != "assistant" or len(messages) < 2:
        raise UsageError(f"{where}: the last of two or more messages must be the assistant's, the reply to learn")
    weight, task = entry.get("weight", 1.0), entry.get("task_id", "")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise UsageError(f"{where}: `weight` must be a number from 0")
    if not isinstance(task, str):
        raise UsageError(f"{where}: `task_id` must be a text")
    return WarmStartExample(tuple(messages[:-1]), messages[-1].content, float(weight), task, Outcome.CORRECT)


def _messages(entries: object, where: str) -> Iterator[Message]:
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{where}: must be an object with a list `messages`")
    for entry in entries:
        fields = {key: entry.get(key) for key in ("role", "content")} if isinstance(entry, dict) else {}
        if fields.get("role") not in _ROLES or not isinstance(fields.get("content"), str):
            raise UsageError(f"{where}: a message needs a `role` out of {', '.join(_ROLES)} and a text as `content`")
        yield from_json(Message, to_json(fields))
