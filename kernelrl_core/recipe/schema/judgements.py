"""What verdicts do to rewards, second judgements, and evaluations on a held-out split."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.types.numbers import NonNegativeFloat, NonNegativeInt, PositiveInt

__all__ = ["EvalSettings", "VerdictSettings", "VerifySettings"]


@attrs.frozen
class VerdictSettings:
    """What a checker's verdict does to the reward."""

    hack_reward: float = 0.0
    """Reward of a turn that ends as `hacked`, in place of the components."""
    suspect: Literal["cap", "zero", "ignore"] = "cap"
    """A `suspect` turn: speedup counted as at most 1, reward 0, or no change."""


def _share() -> float:
    field: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    return field


@attrs.frozen
class VerifySettings:
    """A second judgement of correct kernels: other inputs, other sizes, more trials, profile `strict`. It never pays;
    what does not stand up to it, or is suspect there, is the `hack_gap` of the metrics."""

    train: float = _share()
    """Share of the correct kernels of training that are judged twice, from 0 to 1."""
    eval: float = _share()
    """The same of evaluations."""
    trials: PositiveInt = PositiveInt(10)
    """Correctness trials of the second judgement."""
    sizes: bool = True
    """Have it call the kernel on inputs of other sizes, too, where the task has sizes that may change."""


@attrs.frozen
class EvalSettings:
    """Evaluation on a held-out split, during training and by `kernelrl eval`."""

    split: str = "held_out"
    """Split that is evaluated."""
    every: NonNegativeInt = NonNegativeInt(0)
    """Evaluate after every so many steps; 0: only when `at_start` or `at_end` say so."""
    at_start: bool = False
    """Evaluate before the first step."""
    at_end: bool = False
    """Evaluate after the last step."""
    samples: PositiveInt = PositiveInt(1)
    """Attempts at each task."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature; null takes the training's."""
    max_tasks: PositiveInt | None = None
    """Evaluate only the first tasks of the split."""
    pass_at: tuple[PositiveInt, ...] = (PositiveInt(1),)
    """Values of k for pass@k; tasks with fewer samples give null."""
    fast_thresholds: tuple[NonNegativeFloat, ...] = (
        NonNegativeFloat(0.0),
        NonNegativeFloat(1.0),
        NonNegativeFloat(1.2),
        NonNegativeFloat(1.5),
        NonNegativeFloat(2.0),
    )
    """Values of p for fast_p."""

    def is_due(self, updates: int, n_steps: int) -> bool:
        """Whether a run of `n_steps` evaluates after `updates` steps."""
        return (self.every > 0 and updates % self.every == 0) or (self.at_end and updates == n_steps)
