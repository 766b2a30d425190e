"""Thinking in prompts and replies: find its markers, separate it from the rest of a text.

The markers of all chat formats count (`chat_formats`), with these rules:

- Thinking ends at a closing marker of its own format. Other markers within it are part of it.
- A closing marker without an opening one ends thinking whose opening marker is missing: the prompt contained it.
- In a comment or string of a code block outside thinking, an opening marker is code. A closing one is code, too, if
  thinking has ended before it or if the code contains an opening one before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs

from kernelrl_core.sources.chat_formats import THINKING_MARKERS, ThinkingMarkers
from kernelrl_core.sources.quoted_text import QuotedText
from kernelrl_core.types.replies import Message

__all__ = [
    "ThinkingCut",
    "continuation_after",
    "cut_thinking",
    "is_thinking_token",
    "open_think_tag",
    "prompt_opening",
    "split_prefill",
    "split_thinking",
]

_LONGEST_OPENING = 64
"""Number of characters at the end of a prompt that are searched for an open think tag."""
_LONGEST_OPENING_TOKENS = 16
"""Number of tokens at the end of a prompt that are searched for an open think tag."""

_GROUPS = [(markers, closing) for markers in THINKING_MARKERS for closing in (False, True)]
"""Markers of each group of `_MARKER`, and whether the group matches the closing one."""
_FIRST = "".join(sorted({text[0] for markers in THINKING_MARKERS for text in (markers.opening, markers.closing)}))
"""First characters of all markers, for a fast search."""
_MARKER = re.compile(
    f"(?=[{re.escape(_FIRST)}])(?:"
    + "|".join(f"({markers.closing_pattern if closing else markers.opening_pattern})" for markers, closing in _GROUPS)
    + ")",
    re.ASCII,
)
_OPENED = re.compile(
    "(?:" + "|".join(f"({markers.opening_pattern})" for markers in THINKING_MARKERS) + r")\s*\Z", re.ASCII
)
_CLOSED = re.compile(r"\s*(?:" + "|".join(markers.closing_pattern for markers in THINKING_MARKERS) + ")", re.ASCII)


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


def is_thinking_token(token: str) -> bool:
    """Whether a special token of a tokenizer is a thinking marker of any chat format, or a part of one.

    Such a token must remain in the text of a reply: without it, thinking reads as visible text.

    Args:
        token: the text of the token, such as `[THINK]` or `<|channel|>`.
    """
    escaped = re.escape(token)
    is_part = any(escaped in markers.opening_pattern + markers.closing_pattern for markers in THINKING_MARKERS)
    return is_part or _MARKER.fullmatch(token) is not None


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

    After an open think tag, thinking with the markers of another format gets those of the tag, and a reply without
    thinking closes the tag first.
    """
    opened = _OPENED.search(opening[-_LONGEST_OPENING:])
    if reply.startswith(opening) or opened is None:
        return reply.removeprefix(opening)
    prompted = THINKING_MARKERS[(opened.lastindex or 1) - 1]
    first = _MARKER.search(reply)
    markers, closing = (None, False) if first is None else _markers(first)
    if first is None or not (closing or not reply[: first.start()].strip()):
        return f"\n{prompted.closing}\n\n{reply}"
    if markers is prompted:
        return reply if closing else reply[first.end() :]
    visible, cut = cut_thinking(reply, "")
    return f"{cut.thinking}\n{prompted.closing}\n\n{visible.lstrip()}"


def cut_thinking(text: str, given: str, *, ended: bool = False) -> tuple[str, ThinkingCut]:
    """The text without its thinking, and the thinking.

    Args:
        given: thinking that a renderer separated; removed from `text` if it still contains it.
        ended: thinking before `text` has ended.
    """
    thoughts: list[str] = []
    if given.strip():
        ended = True
        thoughts.append(given.strip())
        found = text.find(given)
        if found >= 0:
            text = text[found + len(given) :]
            # The closing marker that follows would otherwise read as the end of thinking without a beginning.
            closed = _CLOSED.match(text)
            text = text[closed.end() :] if closed else text
    quoted = QuotedText(text)
    visible: list[str] = []
    position = visible_start = 0
    open_markers: ThinkingMarkers | None = None
    for marker in _MARKER.finditer(text):
        markers, closing = _markers(marker)
        if open_markers is None:
            if (ended or not closing) and quoted.contains(marker.start(), visible_start):
                ended = True
                continue
            visible.append(text[position : marker.start()])
            if closing:
                thoughts += visible
                visible.clear()
            else:
                open_markers = markers
        elif markers is open_markers:
            thoughts.append(text[position : marker.start()])
            if closing:
                open_markers = None
        else:
            continue
        position = marker.end()
        if closing:
            ended, visible_start = True, position
    (visible if open_markers is None else thoughts).append(text[position:])
    thinking = "\n\n".join(part.strip() for part in thoughts if part.strip())
    return "".join(visible), ThinkingCut(thinking, open_markers is not None)


def _markers(found: re.Match[str]) -> tuple[ThinkingMarkers, bool]:
    """Markers that a match of `_MARKER` belongs to, and whether it is the closing one."""
    return _GROUPS[(found.lastindex or 1) - 1]
