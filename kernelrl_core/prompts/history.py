"""Chooses which earlier attempts a prompt shows, and words an attempt as the model's own message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import BestHistory, HistorySettings, LastHistory, Recipe
from kernelrl_core.sources.thinking import split_thinking
from kernelrl_core.types import Message, Prompt, Turn

__all__ = ["bounded", "raw_reply", "require_kept_thinking", "shown_turns"]

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
    text = turn.prompt.prefill + turn.reply.text
    if not with_thinking:
        text, _ = split_thinking(text, turn.reply.thinking or "")
    return bounded(text.strip(), MAX_RAW_CHARACTERS) or "(no answer)"


def require_kept_thinking(recipe: Recipe, render: Callable[[Sequence[Message]], Prompt]) -> None:
    """Refuse to keep the thinking of earlier replies as the model's messages where its chat template leaves it out.

    Args:
        render: the policy's chat template and tokeniser.

    Raises:
        UsageError: it does.
    """
    if recipe.episode.turns == 1 or recipe.history.thinking != "kept" or recipe.history.form != "chat":
        return
    # Of different lengths, since policies that do not know the template count characters.
    thoughts = ("yes", "yes, and so on, and on")
    first, second = (
        render(
            (
                Message("user", "Hi"),
                Message("assistant", f"<think>\n{thought}\n</think>\n\nHello."),
                Message("user", "Again"),
            )
        )
        for thought in thoughts
    )
    if first.tokens == second.tokens:
        raise UsageError(
            "history.thinking=kept: the model's chat template leaves the thinking of earlier replies out of what it is "
            "shown as a chat",
            fix="set history.form=prompt, or history.thinking=stripped or summarised",
        )


def bounded(text: str, limit: int) -> str:
    """`text` with its middle left out if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"
