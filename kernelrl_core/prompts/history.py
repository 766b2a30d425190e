"""Selection of the earlier turns that a prompt shows, and their replies as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import BestHistory, HistorySettings, LastHistory, Recipe
from kernelrl_core.sources.thinking import split_thinking
from kernelrl_core.types import Message, Prompt, Turn

__all__ = ["bounded", "raw_reply", "require_kept_thinking", "shown_turns"]

MAX_RAW_CHARACTERS = 2000
"""Maximum length of a reply without a candidate when it is shown in a later prompt."""


def shown_turns(turns: Sequence[Turn], history: HistorySettings) -> tuple[Turn, ...]:
    """The turns to show, in order. Masked turns are excluded; the newest of the others is always included."""
    turns = [turn for turn in turns if not turn.masked]
    if not turns:
        return ()
    match history.keep:
        case LastHistory(last=last):
            return tuple(turns[-last:])
        case BestHistory(best=best):
            order = sorted(range(len(turns)), key=lambda index: (turns[index].score.total, index), reverse=True)
            selected = {*order[:best], len(turns) - 1}
            return tuple(turn for index, turn in enumerate(turns) if index in selected)
        case _:
            return tuple(turns)


def raw_reply(turn: Turn, *, with_thinking: bool) -> str:
    """The text of a reply without a candidate, at most about `MAX_RAW_CHARACTERS` long and never empty."""
    text = turn.prompt.prefill + turn.reply.text
    if not with_thinking:
        text, _ = split_thinking(text, turn.reply.thinking or "")
    return bounded(text.strip(), MAX_RAW_CHARACTERS) or "(no answer)"


def require_kept_thinking(recipe: Recipe, render: Callable[[Sequence[Message]], Prompt]) -> None:
    """Check that the chat template renders the thinking of earlier replies, if the recipe sets
    `history.thinking: kept` with `history.form: chat`.

    Args:
        render: chat template and tokenizer of the policy.

    Raises:
        UsageError: the chat template drops the thinking.
    """
    if recipe.episode.turns == 1 or recipe.history.thinking != "kept" or recipe.history.form != "chat":
        return
    # The two texts differ in length, because some policies do not know the template and only count characters.
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
            "history.thinking=kept: the model's chat template drops the thinking of earlier assistant messages",
            fix="set history.form=prompt, or history.thinking=stripped or summarised",
            see="recipe",
        )


def bounded(text: str, limit: int) -> str:
    """`text`; if it is longer than `limit` characters, its middle is replaced by a note."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters omitted …]\n{text[-tail:]}"
