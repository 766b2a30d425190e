"""Recipe keys of verdicts, verification and held-out evaluation."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.types.numbers import NonNegativeFloat, NonNegativeInt, PositiveInt

__all__ = ["EvalSettings", "SearchSettings", "VerdictSettings", "VerifySettings"]


@attrs.frozen
class VerdictSettings:
    """Effect of a verdict on the score of a turn."""

    hack_reward: float = 0.0
    """Score of a turn with outcome `hacked`; it replaces the reward components."""
    suspect: Literal["cap", "zero", "ignore"] = "cap"
    """A turn with verdict `suspect`: `cap` counts its speedup as at most 1, `zero` sets its score to 0, `ignore`
    changes nothing."""


def _share() -> float:
    field: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    return field


@attrs.frozen
class VerifySettings:
    """Verification: a second evaluation of correct kernels with other inputs, more trials and profile `strict`. It
    changes no score. Metric `verify/hack_gap` is the share of verified kernels that fail or are suspect.
    """

    train: float = _share()
    """Share of correct kernels that are verified in training, from 0 (none) to 1 (all)."""
    eval: float = _share()
    """Share of correct kernels that are verified in held-out evaluation, from 0 (none) to 1 (all)."""
    trials: PositiveInt = PositiveInt(10)
    """Correctness trials of a verification."""
    sizes: bool = False
    """Also call the kernel on inputs of other sizes. Kernels with the sizes of their task written into them then fail.
    No effect for tasks whose sizes are fixed."""


@attrs.frozen
class SearchSettings:
    """Search of a held-out evaluation: all replies to a task form one episode, of the same number of replies."""

    method: Literal["best_of_n", "refine", "beam", "islands"]
    """Kernels that the replies of a round continue from: `best_of_n`: none, every reply is a first turn; `refine`: the
    best kernel so far; `beam`: the best `width` kernels so far; `islands`: kernels of one of several populations that
    evolve separately."""
    width: PositiveInt = PositiveInt(4)
    """Number of kernels that `beam` continues from; the replies of a round are divided evenly between them."""
    islands: PositiveInt = PositiveInt(2)
    """Number of populations of `islands`; the replies are divided evenly between them."""
    parents: PositiveInt = PositiveInt(2)
    """Number of kernels of its island that a reply of `islands` sees: one drawn by rank, the others as different from
    it as possible."""
    migrate_every: PositiveInt = PositiveInt(2)
    """Rounds after which the best kernel of each island also joins the next island."""


@attrs.frozen
class EvalSettings:
    """Held-out evaluation, during training and by `kernelrl eval`."""

    split: str = "held_out"
    """Split that is evaluated."""
    every: NonNegativeInt = NonNegativeInt(0)
    """Steps between held-out evaluations. 0: only as `at_start` and `at_end` request."""
    at_start: bool = False
    """Evaluate before the first step."""
    at_end: bool = False
    """Evaluate after the last step."""
    samples: PositiveInt = PositiveInt(1)
    """Episodes per task."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature. Null: `sampling.temperature`."""
    search: SearchSettings | None = None
    """Search instead of independent episodes: `episode.turns` rounds of `eval.samples` concurrent replies per task.
    Null: no search."""
    max_tasks: PositiveInt | None = None
    """Evaluate only the first n tasks of the split. Null: all."""
    pass_at: tuple[PositiveInt, ...] = (PositiveInt(1),)
    """Values of k for pass@k; null if a task has fewer than k episodes."""
    fast_thresholds: tuple[NonNegativeFloat, ...] = (
        NonNegativeFloat(0.0),
        NonNegativeFloat(0.5),
        NonNegativeFloat(0.8),
        NonNegativeFloat(1.0),
        NonNegativeFloat(1.2),
        NonNegativeFloat(1.5),
        NonNegativeFloat(2.0),
    )
    """Values of p for fast_p, the share of episodes that are correct with a speedup above p. A suspect's speedup counts
    as at most 1; `fast_<p>_as_measured` has it in full."""

    def result_names(self) -> list[str]:
        """Names of the rates, means and speedups of an evaluation whose baseline is PyTorch eager."""
        rates = ["correct_rate", "compile_rate", "reward_mean"]
        rates += [f"pass@{k}" for k in self.pass_at]
        rates += [f"fast_{p:g}" for p in self.fast_thresholds]
        rates += [f"fast_{p:g}_as_measured" for p in self.fast_thresholds if p]
        return [*rates, "geometric_mean_speedup", "geometric_mean_speedup_as_measured"]

    def is_due(self, updates: int, n_steps: int) -> bool:
        """Whether a run of `n_steps` evaluates after `updates` steps."""
        return (self.every > 0 and updates % self.every == 0) or (self.at_end and updates == n_steps)
