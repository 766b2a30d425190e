"""Chooses which earlier attempts a prompt shows, and words an attempt as the model's own message."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.extraction import split_thinking
from kernelrl_core.recipe.schema import BestHistory, HistorySettings, LastHistory
from kernelrl_core.values import Turn

__all__ = ["bounded", "raw_reply", "shown_turns"]

MAX_RAW_CHARACTERS = 2000
"""Of a reply without usable code, so many characters are shown."""


def shown_turns(turns: Sequence[Turn], history: HistorySettings) -> tuple[Turn, ...]:
    """The attempts to show, in the order of their turns. Those that ended as `infra_error` are left out, and the newest
    of the others is always among them."""
    turns = [turn for turn in turns if not turn.masked]
    if not turns:
        return ()
    match history.keep:
        case LastHistory(last=last):
            return tuple(turns[-last:])
        case BestHistory(best=best):
            order = sorted(range(len(turns)), key=lambda index: (turns[index].score.total, index), reverse=True)
            kept = {*order[:best], len(turns) - 1}
            return tuple(turn for index, turn in enumerate(turns) if index in kept)
        case _:
            return tuple(turns)


def raw_reply(turn: Turn, *, with_thinking: bool) -> str:
    """What the model wrote in a reply without usable code, bounded and never empty."""
    text = turn.prompt.begun + turn.reply.text
    if not with_thinking:
        text, _ = split_thinking(text, turn.reply.thinking or "")
    return bounded(text.strip(), MAX_RAW_CHARACTERS) or "(no answer)"


def bounded(text: str, limit: int) -> str:
    """`text` with its middle left out if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"
