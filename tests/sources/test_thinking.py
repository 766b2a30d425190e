"""Thinking, its markers in code, and the prefill: the beginning of a reply that the prompt already contains."""

from __future__ import annotations

import re

import pytest

from kernelrl_core.sources import quoted_text
from kernelrl_core.sources.chat_formats import CHAT_FORMATS, END_OF_TURN, THINKING_MARKERS, ThinkingMarkers
from kernelrl_core.sources.quoted_text import QuotedText
from kernelrl_core.sources.thinking import (
    ThinkingCut,
    cut_thinking,
    is_thinking_token,
    prompt_opening,
    split_prefill,
    split_thinking,
)
from kernelrl_core.types import Message


def decode(tokens: list[int]) -> str:
    assert len(tokens) <= 16
    return bytes(tokens).decode()


@pytest.mark.parametrize(
    ("rendered", "opening"),
    [
        ("a long question<|assistant|><think>\n", "<think>\n"),
        ("<think>", "<think>"),
        ("<think>\nand sixteen more", ""),
        ("", ""),
    ],
)
def test_the_opening_is_found_in_the_last_tokens_of_a_prompt(rendered: str, opening: str) -> None:
    assert prompt_opening(tuple(rendered.encode()), decode) == opening


QUESTION, BEGINNING = Message("user", "q"), Message("assistant", "Sure: ")


@pytest.mark.parametrize(
    ("messages", "before", "prefill"),
    [
        ((QUESTION,), (QUESTION,), ""),
        ((QUESTION, BEGINNING), (QUESTION,), "Sure: "),
        ((QUESTION, BEGINNING, QUESTION), (QUESTION, BEGINNING, QUESTION), ""),
        ((), (), ""),
    ],
)
def test_a_last_message_of_the_assistant_is_the_prefill(
    messages: tuple[Message, ...], before: tuple[Message, ...], prefill: str
) -> None:
    assert split_prefill(messages) == (before, prefill)


def test_every_family_has_markers_that_the_table_recognises() -> None:
    for row in CHAT_FORMATS:
        if row.thinking is not None:
            assert re.fullmatch(row.thinking.closing_pattern, row.thinking.closing)
            # Without special tokens the word `analysis` is a marker only before the first sentence.
            opening = row.thinking.opening + ("We" if row.thinking.opening == "analysis" else "")
            assert re.match(row.thinking.opening_pattern, opening)
            assert not re.match(row.thinking.opening_pattern, row.thinking.closing)
    assert len({row.families for row in CHAT_FORMATS}) == len(CHAT_FORMATS)
    assert all(re.fullmatch(END_OF_TURN, end) for row in CHAT_FORMATS for end in row.ends)


_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|◁[^▷]+▷")
"""The special tokens in the text of a marker."""


@pytest.mark.parametrize("markers", THINKING_MARKERS, ids=lambda markers: markers.opening)
def test_thinking_is_still_found_when_other_special_tokens_are_hidden(markers: ThinkingMarkers) -> None:
    reply = f"<s>{markers.opening}Draft{markers.closing}Answer<|im_end|>"
    shown = _SPECIAL.sub(lambda found: found[0] if is_thinking_token(found[0]) else "", reply)
    assert split_thinking(shown) == ("Answer", "Draft")


@pytest.mark.parametrize("token", ["<think>", "</THINKING>", "<|constrain|>", "<|message|>", "<|start|>", "[/THINK]"])
def test_a_part_of_a_marker_is_a_thinking_token(token: str) -> None:
    assert is_thinking_token(token)


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<pad>", "<|return|>", "[INST]"])
def test_other_special_tokens_are_no_thinking_tokens(token: str) -> None:
    assert not is_thinking_token(token)


@pytest.mark.parametrize(
    ("text", "given", "ended", "visible", "thinking"),
    [
        ("a</think>b", "", False, "b", "a"),
        ("a</think>b", "", True, "b", "a"),
        ("```\n# </think>\n```", "", False, "\n```", "```\n#"),
        ("```\n# </think>\n```", "", True, "```\n# </think>\n```", ""),
        ("```\n# </think>\n```", "thoughts", False, "```\n# </think>\n```", "thoughts"),
        ("hm[/THINK]b</think>c", "hm", False, "c", "hm\n\nb"),
        ("<think>a<think>b</think>c", "", False, "c", "a\n\nb"),
        ("<think>a[/THINK]b</think>c", "", False, "c", "a[/THINK]b"),
    ],
)
def test_thinking_is_cut_from_a_text(text: str, given: str, ended: bool, visible: str, thinking: str) -> None:
    found, cut = cut_thinking(text, given, ended=ended)
    assert (found, cut) == (visible, ThinkingCut(thinking, False))


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("```\nx # ?\n```", True),
        ("```\nx // ?\n```", True),
        ("```\nx ?\n# y\n```", False),
        ("# ?\n```\n```", False),
        ("```\n```\n# ?", False),
        ("```\n# ?\n~~~", False),
        ("```\n# ?\n````", True),
        ("````\n# ?\n```", False),
        ("```\n# ?\n``` text", False),
        ("```\n# ?\n```<|im_end|>", True),
        ("```\n# ?\r\n```\r\n", True),
        ("a ```py\n# ?\n```", True),
        ("a ```\n# ?\n```", False),
        ("<KERNEL>\n# ?\n</KERNEL>", True),
        ("<KERNEL>\n# ?\n```", False),
        ("```\n'?'\n```", True),
        ("```\n'x' ? 'y'\n```", False),
        ("```\ndon't ?, isn't\n```", False),
        ("```\n'\\'?'\n```", True),
        ("```\nx = '\n?\n'\n```", False),
        ("```\n/*\n?\n*/\n```", True),
        ("```\n/*\n?\n```", False),
        ("```\n'''\n?\n'''\n```", True),
        ("```\n'''\n```\n?\n```\n'''\n```", False),
        ("```\n'''\n```\n'''\n# ?\n```", True),
    ],
)
def test_comments_and_strings_of_closed_code_blocks_are_quoted(text: str, quoted: bool) -> None:
    assert QuotedText(text).contains(text.index("?"), 0) is quoted


def test_text_is_not_quoted_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = "```\n# 1\n```\n```\n# ?\n```\n"
    position = blocks.index("?")
    for budget, quoted in ((8, True), (7, False)):
        monkeypatch.setattr(quoted_text, "_MAX_READ_CHARACTERS", budget)
        assert QuotedText(blocks).contains(position, 0) is quoted
    monkeypatch.undo()
    assert QuotedText(blocks).contains(position, blocks.index("# ?")) is False
