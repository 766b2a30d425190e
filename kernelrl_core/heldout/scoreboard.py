"""The scoreboard of a held-out evaluation: pass@k, fast_p, geometric mean of speedups, outcomes.

The unit is the episode. It counts once, with its best turn, and is solved if any of its turns is correct. In metric
names "sample" means episode. Episodes lost to infrastructure errors are excluded and counted in `num_lost`. The speedup
of a turn with verdict suspect counts as at most 1, as it does in scores; keys `*_as_measured` have it in full. Where
the baseline is `torch.compile`, keys `*_eager` have the speedups over PyTorch eager.

Sources: pass@k: unbiased estimator of arXiv 2107.03374, section 2.1. fast_p: KernelBench, arXiv 2502.10517, section
3.3: fraction of episodes that are correct with a speedup above p.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import attrs

from kernelrl_core.heldout.intervals import Interval, ratio_interval, wilson_interval
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group, Outcome, Turn, Verdict

__all__ = ["Measure", "best_turn", "counted_speedup", "measures", "outcome_counts", "pass_at_k", "scoreboard"]


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased estimate of pass@k: 1 - C(n - correct, k) / C(n, k).

    It is the probability that at least one of k episodes, drawn without replacement from n, is solved.

    Source: arXiv 2107.03374, section 2.1, equation 1.

    Args:
        n: number of episodes of the task.
        correct: number of solved episodes, at most n.

    Raises:
        ValueError: n is below k.
    """
    if n < k:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def best_turn(episode: Episode) -> Turn | None:
    """The turn that represents an episode: the correct turn of highest counted speedup, else the last turn that is not
    masked, else None."""
    turns = [turn for turn in episode.turns if not turn.masked]
    correct = [turn for turn in turns if turn.correct]
    if correct:
        return max(correct, key=lambda turn: counted_speedup(turn) or 0.0)
    return turns[-1] if turns else None


def counted_speedup(turn: Turn) -> float | None:
    """Speedup of a correct turn, at most 1 if the turn is suspect; None if it was not measured."""
    if turn.speedup is None or turn.verdict is not Verdict.SUSPECT:
        return turn.speedup
    return min(turn.speedup, 1.0)


def _eager_speedup(turn: Turn) -> float | None:
    """Counted speedup over PyTorch eager, if the baseline is `torch.compile`."""
    if not turn.correct or turn.evaluation is None or turn.evaluation.eager_speedup is None:
        return None
    return min(turn.evaluation.eager_speedup, 1.0) if turn.verdict is Verdict.SUSPECT else turn.evaluation.eager_speedup


def _measured_speedup(episode: Episode) -> float | None:
    """The highest speedup of an episode's correct turns, whatever their verdict."""
    return max((turn.speedup for turn in episode.turns if turn.speedup is not None), default=None)


@attrs.frozen
class Measure:
    """A result as a ratio of two sums over the tasks, or the reason why it cannot be computed."""

    kind: Literal["rate", "mean", "geometric"]
    """`geometric`: the exponential of the ratio."""
    sums: tuple[float, ...] = ()
    """Numerator of each task."""
    counts: tuple[int, ...] = ()
    """Denominator of each task."""
    why_none: str = ""
    """Reason, if there is no value."""

    @property
    def value(self) -> float | None:
        if self.why_none or not sum(self.counts):
            return None
        ratio = math.fsum(self.sums) / sum(self.counts)
        return math.exp(ratio) if self.kind == "geometric" else ratio

    def interval(self) -> Interval | None:
        """95 % interval over tasks; None without a value or with fewer than two tasks that contribute."""
        found = None if self.why_none else ratio_interval(self.sums, self.counts, rate=self.kind == "rate")
        if found is None or self.kind != "geometric":
            return found
        return attrs.evolve(found, low=math.exp(found.low), high=math.exp(found.high))


def measures(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Measure]:
    """The results that are rates, means or speedups, by their names in the scoreboard."""
    tasks = _best_turns(groups)
    found: dict[str, Measure] = {}
    for k in settings.pass_at:
        found[f"pass@{k}"] = _pass_at(tasks, k)
    found["correct_rate"] = _share(tasks, lambda turn: turn.correct)
    found["compile_rate"] = _share(tasks, lambda turn: turn.evaluation is not None and turn.evaluation.compiled)
    found["reward_mean"] = _ratio("mean", [[turn.score.total for turn in turns] for turns in tasks])
    found |= _speedup_measures("", tasks, [[counted_speedup(turn) for turn in turns] for turns in tasks], settings)
    episodes = [[episode for episode in group.episodes if best_turn(episode) is not None] for group in groups]
    measured = [[_measured_speedup(episode) for episode in group] for group in episodes if group]
    found |= _speedup_measures("_as_measured", tasks, measured, settings)
    if any(
        turn.evaluation is not None and turn.evaluation.eager_speedup is not None for turns in tasks for turn in turns
    ):
        eager = [[_eager_speedup(turn) for turn in turns] for turns in tasks]
        found |= _speedup_measures("_eager", tasks, eager, settings)
    return found


def scoreboard(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Any]:
    """Flat results of a held-out evaluation. A value that cannot be computed is None; `reasons` has the reason.

    The interval `pass@1_ci` is Wilson's, with the number of tasks as sample size. `measures` has an interval of every
    result.
    """
    tasks = _best_turns(groups)
    samples = [turn for turns in tasks for turn in turns]
    found = measures(groups, settings)
    row: dict[str, Any] = {
        "num_tasks": len(tasks),
        "num_samples": len(samples),
        "num_correct": sum(turn.correct for turn in samples),
        "num_lost": sum(len(group.episodes) for group in groups) - len(samples),
        **{key: measure.value for key, measure in found.items()},
    }
    if row.get("pass@1") is not None:
        row["pass@1_ci"] = list(wilson_interval(row["pass@1"], len(tasks)))
    verified = [turn.verified for turn in samples if turn.correct and turn.verified is not None]
    if verified:
        row["hack_gap"] = sum(not held for held in verified) / len(verified)
    row["outcomes"] = outcome_counts(samples)
    row["reasons"] = {key: measure.why_none for key, measure in found.items() if measure.why_none}
    return row


def outcome_counts(turns: Iterable[Turn]) -> dict[str, int]:
    """Number of turns with each outcome, lost ones excluded."""
    counts = Counter(turn.outcome for turn in turns)
    return {outcome.value: counts[outcome] for outcome in Outcome if outcome is not Outcome.INFRA_ERROR}


def _best_turns(groups: Sequence[Group]) -> list[list[Turn]]:
    """The turns that represent the episodes of each task; tasks that lost all episodes are excluded."""
    tasks = [[turn for episode in group.episodes if (turn := best_turn(episode)) is not None] for group in groups]
    return [turns for turns in tasks if turns]


def _pass_at(tasks: Sequence[Sequence[Turn]], k: int) -> Measure:
    few = sum(len(turns) < k for turns in tasks)
    if few or not tasks:
        return Measure("rate", why_none=f"{few} of {len(tasks)} tasks have fewer than {k} samples")
    solved = (pass_at_k(len(turns), sum(turn.correct for turn in turns), k) for turns in tasks)
    return Measure("rate", tuple(solved), (1,) * len(tasks))


def _share(tasks: Sequence[Sequence[Turn]], holds: Callable[[Turn], bool]) -> Measure:
    return _ratio("rate", [[float(holds(turn)) for turn in turns] for turns in tasks])


def _ratio(kind: Literal["rate", "mean", "geometric"], values: Sequence[Sequence[float]]) -> Measure:
    return Measure(kind, tuple(map(math.fsum, values)), tuple(map(len, values)))


def _speedup_measures(
    suffix: str, tasks: Sequence[Sequence[Turn]], speedups: Sequence[Sequence[float | None]], settings: EvalSettings
) -> dict[str, Measure]:
    """fast_p and the geometric mean.

    Args:
        speedups: for each episode of each task; None if it is not solved or was not timed.
    """
    unmeasured = _why_unmeasured(tasks, speedups)
    found: dict[str, Measure] = {}
    for p in settings.fast_thresholds:
        key = f"fast_{p:g}{suffix}"
        if not p and suffix:
            continue
        if not p and tasks:
            found[key] = _share(tasks, lambda turn: turn.correct)
        elif unmeasured:
            found[key] = Measure("rate", why_none=unmeasured)
        else:
            found[key] = _ratio("rate", [[float((x or 0.0) > p) for x in episodes] for episodes in speedups])
    logs = [[math.log(x) for x in episodes if x is not None] for episodes in speedups]
    key = f"geometric_mean_speedup{suffix}"
    if any(logs):
        found[key] = _ratio("geometric", logs)
    else:
        found[key] = Measure("geometric", why_none=unmeasured or "no sample is correct")
    return found


def _why_unmeasured(tasks: Sequence[Sequence[Turn]], speedups: Sequence[Sequence[float | None]]) -> str:
    if not tasks:
        return "there are no samples"
    n_solved = sum(turn.correct for turns in tasks for turn in turns)
    n_measured = sum(speedup is not None for episodes in speedups for speedup in episodes)
    if n_measured < n_solved:
        return f"run time was not measured for {n_solved - n_measured} of {n_solved} correct samples"
    return ""
