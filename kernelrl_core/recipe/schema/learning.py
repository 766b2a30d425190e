"""What is learnt from, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.types.training import MismatchSettings

__all__ = ["CoverageRejection", "DemonstrationSettings", "ReturnSettings", "TrainSettings"]


@attrs.frozen
class ReturnSettings:
    """How later turns count for earlier ones."""

    gamma: Fraction = Fraction(1.0)
    """Discount per turn."""
    aggregate: Literal["sum", "max"] = "sum"
    """`sum`: R_t = s_t + gamma R_(t+1); `max`: R_t = max over i >= t of gamma^(i-t) s_i."""


@attrs.frozen
class CoverageRejection:
    """Leave out correct samples whose time is mostly spent in kernels that are not their own."""

    threshold: Fraction = Fraction(0.3)
    """Share of device time in own kernels up to which a sample is never trained on …"""
    ramp: NonNegativeFloat = NonNegativeFloat(0.1)
    """… and by how much more it always is: kept with probability clip((share - threshold) / ramp, 0, 1)."""


@attrs.frozen
class DemonstrationSettings:
    """What a policy that warm-starts learns from before reinforcement learning begins."""

    file: Path | None = None
    """Conversations as `kernelrl distill` writes them: JSONL with `messages`, the last of which is learnt; null: none.
    """
    bundled: bool = True
    """Learn from the answers that the task source bundles as well."""


@attrs.frozen
class TrainSettings:
    """Batches, credit and the optimizer."""

    split: str = "train"
    """Split that is trained on."""
    quarantine: bool = True
    """Leave out tasks whose audit found that a shortcut would be paid for, or that cannot be judged."""
    tasks_per_step: PositiveInt = PositiveInt(8)
    """Tasks in a batch."""
    group_size: PositiveInt = PositiveInt(8)
    """Attempts at each task."""
    steps: NonNegativeInt | None = None
    """Number of steps; leave it out to count in epochs."""
    epochs: PositiveFloat | None = None
    """Passes over the training split; the last batch may be short. Without `steps` and `epochs`: one pass."""
    shuffle: bool = True
    """Draw tasks in an order derived from seed and epoch; false keeps the source's order."""
    learning_rate: NonNegativeFloat = NonNegativeFloat(1e-5)
    warmup_ratio: Fraction = Fraction(0.0)
    """Share of the steps in which the learning rate rises linearly to its full value."""
    substeps: PositiveInt = PositiveInt(1)
    """Optimizer steps per batch."""
    loss: str = "importance_sampling"
    """`importance_sampling`, `ppo`, `cispo`, or another loss of the policy."""
    clip_low: Fraction = Fraction(0.2)
    """PPO and CISPO: lower clip of the ratio, as distance from 1."""
    clip_high: NonNegativeFloat = NonNegativeFloat(0.2)
    """PPO and CISPO: upper clip of the ratio, as distance from 1."""
    kl: NonNegativeFloat = NonNegativeFloat(0.0)
    """Weight of the penalty for leaving the model as it started; 0: none."""
    mismatch: MismatchSettings | None = None
    """Leave out samples about which sampler and trainer disagree; null: none."""
    ratio: Literal["token", "sequence"] = "token"
    """What losses weight and clip by: each token's ratio, or the geometric mean of the ratios of its reply."""
    coverage_rejection: CoverageRejection | None = None
    """Leave out correct but lazy kernels, by their profile; null: none."""
    length_norm: Literal["tokens", "max_tokens", "none"] | PositiveInt = "tokens"
    """Divisor, times `substeps`, of the token loss that an optimizer step sums: sampled tokens of the batch; samples
    times the step's `max_tokens`; samples; or samples times a constant."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the gradient's global norm."""
    beta1: Fraction = Fraction(0.9)
    beta2: Fraction = Fraction(0.95)
    eps: PositiveFloat = PositiveFloat(1e-8)
    weight_decay: NonNegativeFloat = NonNegativeFloat(0.0)
    drop_uniform_groups: bool = True
    """Leave out groups whose advantages are all 0; a step with nothing left trains nothing and is counted as
    skipped."""
    min_group_size: PositiveInt = PositiveInt(2)
    """Fewest attempts of a task that must be free of infrastructure errors; smaller groups are masked."""
    stream: bool = True
    """Compute gradients of a group as soon as it and all before it are complete, where policy and settings allow it
    (docs/pipelining.md). Changes nothing but time."""
    order: Literal["canonical", "completion"] = "canonical"
    """Order in which groups are learnt from: that of the batch, or that in which they were completed."""
    staleness: NonNegativeInt = NonNegativeInt(0)
    """Steps that may be sampled ahead while earlier ones are trained; their samples lack so many updates at most."""
    exact_resume: bool = True
    """Refuse settings under which a resumed run would not repeat the undisturbed one."""
    checkpoint_every: PositiveInt = PositiveInt(1)
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: PositiveInt | None = PositiveInt(3)
    """Newest checkpoints whose files are kept; null keeps all. The last of a finished run always stays."""
