"""What `kernelrl optimize` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import Outcome, Turn
from kernelrl_experiments.optimize.found import Found

__all__ = ["facts", "given_line", "outcomes_text", "round_line", "speedup_text"]

_PROBLEMS = {
    "no_code": "without a code block",
    "truncated": "truncated",
    "syntax": "not valid Python",
    "no_model": "without ModelNew",
}
_STOPPED = {
    "rounds": "all rounds are done",
    "budget": "the budget does not suffice for another reply",
    "evaluations": "the evaluations are used up",
    "target": "the target speedup is reached",
    "no_progress": "no progress",
    "untimed": "a kernel is correct, and kernels are not timed here",
}


def speedup_text(turn: Turn) -> str:
    """Speedup with its 95 % interval and the run times; empty if the kernel was not timed."""
    evaluation = turn.evaluation
    if turn.speedup is None or evaluation is None:
        return ""
    text = f"{turn.speedup:.2f}x"
    if evaluation.speedup_ci is not None:
        low, high = evaluation.speedup_ci
        text += f" ({low:.2f} to {high:.2f})"
    if evaluation.runtime is not None and evaluation.baseline is not None:
        text += f": {evaluation.runtime.median_us:.1f} us against {evaluation.baseline.median_us:.1f} us"
    return text


def given_line(name: str, turn: Turn) -> str:
    """The result of the given kernel."""
    if not turn.correct:
        reason = turn.message.strip().partition("\n")[0]
        return f"{name} is {turn.outcome.value}: {reason}; the search repairs it first"
    suspect = "" if turn.verdict.value == "clean" else f", {turn.verdict.value}"
    times = speedup_text(turn)
    return f"{name}: correct{suspect}{f', {times}' if times else ''}"


def round_line(
    number: int, count: int, turns: Sequence[Turn], best: Turn | None, usd: float | None, seconds: float
) -> str:
    """The result of a round."""
    noun = "reply" if len(turns) == 1 else "replies"
    parts = [f"round {number}/{count}", f"best {_best_text(best)}", f"{len(turns)} {noun}: {outcomes_text(turns)}"]
    if usd is not None:
        parts.append(f"{usd:.4f} USD")
    return "  ".join([*parts, f"{seconds:.1f} s"])


def _best_text(best: Turn | None) -> str:
    if best is None:
        return "none yet"
    return speedup_text(best).partition(":")[0] or "correct"


def outcomes_text(turns: Sequence[Turn]) -> str:
    """Number of turns with each outcome, and with each reason why there is no kernel."""
    counts = Counter(turn.outcome for turn in turns)
    words = []
    for outcome in Outcome:
        if not counts[outcome]:
            continue
        text = f"{counts[outcome]} {outcome.value}"
        if outcome is Outcome.FORMAT_ERROR:
            problems = Counter(turn.extraction.problem for turn in turns if turn.outcome is outcome)
            named = ", ".join(f"{n} {_PROBLEMS.get(problem, problem)}" for problem, n in problems.most_common())
            text += f" ({named})"
        words.append(text)
    return ", ".join(words)


def facts(found: Found, recipe: Recipe, is_given: bool) -> list[tuple[str, str]]:
    """Label and value of each line about a search, for the screen and the report.

    Args:
        is_given: whether the first turn is that of a given kernel.
    """
    first = 1 if is_given else 0
    replies = found.turns[first:]
    rows = [("best", "no kernel is correct and clean")]
    if found.best is not None:
        number = found.best.id.turn
        place = f"attempt {number}, round {(number - first) // recipe.eval.samples + 1}"
        text = speedup_text(found.best) or "correct, not timed"
        rows = [("best", f"{text}; {place if number >= first else 'the given kernel'}")]
        if found.selected_speedup is not None:
            rows.append(
                ("selected", f"by {found.selected_speedup:.2f}x in the search; the line above is measured anew")
            )
    ended = f"{_STOPPED[found.stopped_by]}; " if found.stopped_by is not None else ""
    rows.append(("rounds", f"{ended}{found.rounds} of {recipe.episode.turns}"))
    rows.append(("replies", f"{len(replies)}: {outcomes_text(replies)}"))
    if truncated := sum(turn.reply.stop_reason == "length" for turn in replies):
        limit = recipe.sampling.max_tokens
        rows.append(("truncated", f"{truncated} of the replies, at sampling.max_tokens={limit}; raise it"))
    tokens = f"{found.spent.prompt_tokens:,} prompt tokens, {found.spent.reply_tokens:,} reply tokens"
    rows.append(("cost", tokens if found.usd is None else f"{found.usd:.4f} USD; {tokens}"))
    return rows
