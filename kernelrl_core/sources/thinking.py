"""Thinking in prompts and replies: find its tags, separate it from the rest of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs

from kernelrl_core.types.replies import Message

__all__ = [
    "ThinkingCut",
    "continuation_after",
    "cut_thinking",
    "open_think_tag",
    "prompt_opening",
    "split_prefill",
    "split_thinking",
]

_LONGEST_OPENING = 64
"""Number of characters at the end of a prompt that are searched for an open think tag."""
_LONGEST_OPENING_TOKENS = 16
"""Number of tokens at the end of a prompt that are searched for an open think tag."""

_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE | re.ASCII)
_OPENED = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE | re.ASCII)


@attrs.frozen
class ThinkingCut:
    """The thinking in a text."""

    thinking: str
    unclosed: bool
    """True if a thinking block has no end."""


def split_thinking(text: str, thinking: str = "") -> tuple[str, str]:
    """The text without its thinking, and the thinking. `thinking` is thinking that a renderer already separated."""
    visible, cut = cut_thinking(text, thinking)
    return visible, cut.thinking


def open_think_tag(rendered: str) -> str:
    """Open think tag at the end of a rendered prompt, with the white space after it; empty if there is none.

    Many chat templates open the thinking themselves, so that the reply begins inside it: see `Prompt.opening`.
    """
    opened = _OPENED.search(rendered[-_LONGEST_OPENING:])
    return opened[0] if opened else ""


def prompt_opening(tokens: Sequence[int], decode: Callable[[list[int]], str]) -> str:
    """`Prompt.opening` of a rendered prompt: `open_think_tag` of its last tokens.

    Args:
        decode: token ids to text, special tokens included.
    """
    return open_think_tag(decode(list(tokens[-_LONGEST_OPENING_TOKENS:])))


def split_prefill(messages: Sequence[Message]) -> tuple[Sequence[Message], str]:
    """Split off the prefill: a last message with role `assistant`. Returns the messages before it and its text."""
    if messages and messages[-1].role == "assistant":
        return messages[:-1], messages[-1].content
    return messages, ""


def continuation_after(opening: str, reply: str) -> str:
    """The text after a prefill such that both together are equivalent to `reply`.

    After an open think tag, a reply without thinking closes the tag first.
    """
    tag = _THINK.search(reply)
    if reply.startswith(opening) or not open_think_tag(opening) or (tag and tag[1]):
        return reply.removeprefix(opening)
    return reply[tag.end() :] if tag and not reply[: tag.start()].strip() else f"\n</think>\n\n{reply}"


def cut_thinking(text: str, given: str) -> tuple[str, ThinkingCut]:
    """The text without its thinking, and the thinking."""
    thoughts: list[str] = []
    if given.strip():
        thoughts.append(given.strip())
        found = text.find(given)
        if found >= 0:
            text = text[found + len(given) :]
            # The closing tag that follows would otherwise read as the end of thinking without a beginning.
            text = re.sub(r"\A\s*</think(?:ing)?>", "", text, count=1, flags=re.IGNORECASE)
    visible: list[str] = []
    position, opened = 0, False
    for tag in _THINK.finditer(text):
        part, closing = text[position : tag.start()], bool(tag[1])
        position = tag.end()
        if opened or closing:
            if closing and not opened:
                thoughts.extend(visible)
                visible.clear()
            thoughts.append(part)
            opened = opened and not closing
        else:
            visible.append(part)
            opened = True
    (thoughts if opened else visible).append(text[position:])
    return "".join(visible), ThinkingCut("\n\n".join(part.strip() for part in thoughts if part.strip()), opened)
