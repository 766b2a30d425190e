"""Recipe keys of training data, credit and the optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.types.training import MismatchSettings

__all__ = ["CoverageRejection", "DemonstrationSettings", "ReturnSettings", "TrainSettings"]


@attrs.frozen
class ReturnSettings:
    """Return R_t of a turn, from the scores s of this and later turns. No effect with one turn (`episode.turns`)."""

    gamma: Fraction = Fraction(1.0)
    """Discount per turn."""
    aggregate: Literal["sum", "max"] = "sum"
    """`sum`: R_t = s_t + gamma R_(t+1). `max`: R_t = max over i >= t of gamma^(i-t) s_i."""


@attrs.frozen
class CoverageRejection:
    """Filter correct training samples that spend most device time outside their own kernels. A sample is trained on
    with probability clip((share - threshold) / ramp, 0, 1), where share is the share of device time in own kernels."""

    threshold: Fraction = Fraction(0.3)
    """Samples with this share, or less, are always filtered."""
    ramp: NonNegativeFloat = NonNegativeFloat(0.1)
    """Samples with a share of at least threshold + ramp are never filtered."""


@attrs.frozen
class DemonstrationSettings:
    """Demonstrations for the supervised warm start of a policy. No effect on a policy without a warm start."""

    file: Path | None = None
    """JSONL file of conversations, as `kernelrl distill` writes them: each line has `messages`, of which the last, the
    reply, is learned. Null: none."""
    bundled: bool = True
    """Also use the demonstrations of the task source."""


@attrs.frozen
class TrainSettings:
    """Batches, credit and the optimizer."""

    split: str = "train"
    """Split that is trained on."""
    quarantine: bool = True
    """Exclude tasks whose audit found that a shortcut would get a score, or that cannot be evaluated."""
    decontaminate: bool = True
    """Exclude tasks that equal a task of `eval.split`: equal sources up to names, constants, formatting and order of
    independent statements, or equal outputs in an audit. Applies to warm-start demonstrations too. No effect if both
    splits are the same."""
    tasks_per_step: PositiveInt = PositiveInt(8)
    """Tasks per step. If the split has fewer, tasks repeat in the step."""
    group_size: PositiveInt = PositiveInt(8)
    """Episodes per task in a step."""
    steps: NonNegativeInt | None = None
    """Number of steps. Null: `epochs` determines it."""
    epochs: PositiveFloat | None = None
    """Passes over the training split; the last batch may be smaller. Null, and `steps` null: one pass."""
    shuffle: bool = True
    """Draw tasks in a random order, derived from seed and epoch. False: in the order of the task source."""
    learning_rate: NonNegativeFloat = NonNegativeFloat(1e-5)
    """Learning rate of Adam after warmup."""
    warmup_ratio: Fraction = Fraction(0.0)
    """Share of the steps in which the learning rate rises linearly to `learning_rate`."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warmup: `constant`, or falling in a line or a half cosine to the floor after the last step.
    """
    learning_rate_floor: Fraction = Fraction(0.0)
    """Share of `learning_rate` to which the schedule `linear` or `cosine` falls."""
    substeps: PositiveInt = PositiveInt(1)
    """Optimizer steps per batch. Above 1, the later ones are off-policy."""
    loss: str = "importance_sampling"
    """`importance_sampling`, `ppo`, `cispo`, or another loss of the policy."""
    clip_low: Fraction = Fraction(0.2)
    """The loss clips the ratio p_train / p_sampled from below at 1 - clip_low. No effect on `importance_sampling`."""
    clip_high: NonNegativeFloat = NonNegativeFloat(0.2)
    """The loss clips the ratio p_train / p_sampled from above at 1 + clip_high. No effect on `importance_sampling`."""
    logprobs_at: Literal["sampling", 1] | None = None
    """Temperature of the log-probabilities in ratios, losses and KL penalty: that of `sampling`, so that the ratios are
    those of the distribution that was sampled from, or 1. Null: `sampling` if the policy can, else 1."""
    kl: NonNegativeFloat = NonNegativeFloat(0.0)
    """Weight of the KL penalty against the reference policy, the weights before the first step. 0: none."""
    mismatch: MismatchSettings | None = None
    """Filter training samples whose sampler and trainer log-probabilities disagree. Null: none."""
    importance_cap: PositiveFloat | None = None
    """Truncated importance sampling: weight every token by min(p_trainer / p_sampler, importance_cap), where p_trainer
    is its probability under the trainer's weights before the step, and take the ratio of the loss to p_trainer. 2 is
    usual. Null: no weights, and the ratio of the loss is to p_sampler."""
    ratio: Literal["token", "sequence", "sequence_sum"] = "token"
    """Ratio p_train / p_sampled in the loss: of each `token`, or of the whole reply (geometric mean over its tokens).
    With `sequence` (GSPO) the loss has one term per reply; with `sequence_sum` it has that term for each of its tokens.
    """
    coverage_rejection: CoverageRejection | None = None
    """Filter correct training samples that spend too little device time in their own kernels. Requires
    `evaluation.timing`. Null: none."""
    length_norm: Literal["tokens", "per_sample", "max_tokens", "none"] | PositiveInt = "tokens"
    """Loss denominator of an optimizer step, where n is the number of training samples in the batch. `tokens`: sampled
    tokens of the batch (with `ratio: sequence` n, as the loss has one term per reply); `per_sample`: n, and the loss of
    a sample is the mean over its tokens; `max_tokens`: n times the reply limit of the step; `none`: n; an integer L: n
    times L. Each is divided by `substeps`."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the global norm of the gradient to this value. Null: no clipping."""
    beta1: Fraction = Fraction(0.9)
    """Adam: decay rate of the gradient mean."""
    beta2: Fraction = Fraction(0.95)
    """Adam: decay rate of the squared gradient mean."""
    eps: PositiveFloat = PositiveFloat(1e-8)
    """Adam: constant added to the denominator."""
    weight_decay: NonNegativeFloat = NonNegativeFloat(0.0)
    """Decoupled weight decay (AdamW)."""
    drop_uniform_groups: bool = True
    """Filter groups whose advantages are all 0. A step in which no group remains makes no update and counts as
    skipped."""
    refill: NonNegativeInt = NonNegativeInt(0)
    """Times that a step samples other tasks in place of its uniform and masked groups, until `tasks_per_step` groups
    have a signal. 0: never."""
    min_group_size: PositiveInt = PositiveInt(2)
    """Least episodes of a group without an infrastructure error. A group with fewer is masked."""
    stream: bool = True
    """Compute the gradients of a group while later groups are sampled, if policy and settings allow it
    (docs/pipelining.md). Affects only the duration of a step."""
    order: Literal["canonical", "completion"] = "canonical"
    """Order in which the policy learns from groups: `canonical`, the order of the batch, or `completion`."""
    staleness: NonNegativeInt = NonNegativeInt(0)
    """Maximum steps sampled ahead of the update, and so the maximum updates between sampling a reply and training on
    it. 0: no step is sampled ahead."""
    exact_resume: bool | None = None
    """Reject settings with which a resumed run differs from an uninterrupted one: `order: completion`, `staleness`
    above 0, a policy that is not deterministic. Null: true if the policy is deterministic, else false."""
    checkpoint_every: PositiveInt = PositiveInt(1)
    """Steps between checkpoints. The last step always has one."""
    keep_checkpoints: PositiveInt | None = PositiveInt(3)
    """Number of most recent checkpoints whose files are kept. Null: all."""
    keep_best: str | None = None
    """Metric of the held-out evaluation, such as `eval/pass@1`: the checkpoint with its highest value is kept, too, as
    checkpoint `best`. Every evaluated step then has a checkpoint. Null: none."""

    @property
    def needs_current_logprobs(self) -> bool:
        """Whether a step needs the log-probabilities of its samples under the weights before the step."""
        return self.mismatch is not None or self.importance_cap is not None

    @property
    def ratio_level(self) -> Literal["token", "sequence"]:
        """The ratio of a token in the policy's loss: its own, or that of its reply."""
        return "token" if self.ratio == "token" else "sequence"

    @property
    def weighs_samples(self) -> bool:
        """Whether the loss of a sample is the mean over its tokens, so that all samples have the same weight."""
        return self.ratio == "sequence" or self.length_norm == "per_sample"
