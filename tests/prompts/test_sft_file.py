"""Files of conversations: unusable ones are named with their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelrl_core.errors import StorageError, UsageError
from kernelrl_core.prompts.sft_file import read_conversations, write_conversations

CONVERSATION = {"messages": [{"role": "user", "content": "a\u2028b"}, {"role": "assistant", "content": "c"}]}


def test_conversations_are_read_back_with_their_line_separators(tmp_path: Path) -> None:
    write_conversations(tmp_path / "a.jsonl", (CONVERSATION, {**CONVERSATION, "weight": 2.0, "task_id": "t"}))
    first, second = read_conversations(tmp_path / "a.jsonl")
    assert [message.content for message in first.messages] == ["a\u2028b"]
    assert (first.reply, first.weight, second.weight, second.task_id) == ("c", 1.0, 2.0, "t")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"\xff\xfe", "cannot read"),
        (b"\n\n", "contains no conversations"),
        (json.dumps(CONVERSATION).encode() + b"\n{", r"a\.jsonl:2: not JSON"),
        (b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        (b'{"messages": []}', r"a\.jsonl:1: "),
        (b"[1]", r"a\.jsonl:1: "),
    ],
)
def test_an_unusable_file_is_named_with_its_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_conversations(tmp_path / "a.jsonl")


def test_a_directory_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        write_conversations(tmp_path / "file" / "a.jsonl", (CONVERSATION,))
