"""JSONL files for supervised fine-tuning, written from a run and read as demonstrations.

Each line is one conversation, `{"messages": [{"role": …, "content": …}, …]}`; its last message is the reply to learn.
Most tools for supervised fine-tuning read this format. Kernels in the file are never executed.
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

    Besides `messages`, a line may contain `weight` (relative weight, default 1) and `task_id`. Other keys are ignored.

    Raises:
        UsageError: the file cannot be read, is empty, or a line is not a conversation; names file and line.
    """
    try:
        # Not `splitlines`: JSON strings may contain unescaped Unicode line separators.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"demonstrations.file: cannot read {path}: {error}") from error
    found = [_example(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"demonstrations.file: {path} contains no conversations")
    return found


def _example(line: str, where: str) -> WarmStartExample:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    messages = list(_messages(entry.get("messages") if isinstance(entry, dict) else None, where))
    if messages[-1].role != "assistant" or len(messages) < 2:
        raise UsageError(f"{where}: needs two or more messages, the last with role assistant: the reply to learn")
    weight, task = entry.get("weight", 1.0), entry.get("task_id", "")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise UsageError(f"{where}: `weight` must be a finite number, at least 0")
    if not isinstance(task, str):
        raise UsageError(f"{where}: `task_id` must be a string")
    return WarmStartExample(tuple(messages[:-1]), messages[-1].content, float(weight), task, Outcome.CORRECT)


def _messages(entries: object, where: str) -> Iterator[Message]:
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{where}: must be an object with a list `messages`")
    for entry in entries:
        fields = {key: entry.get(key) for key in ("role", "content")} if isinstance(entry, dict) else {}
        if fields.get("role") not in _ROLES or not isinstance(fields.get("content"), str):
            raise UsageError(f"{where}: a message needs a `role` ({', '.join(_ROLES)}) and a string as `content`")
        yield from_json(Message, to_json(fields))
