"""The update of a step from its credits; where possible, gradients are computed while the step is still sampled.

The advantages of a group are known when the group is complete. With `train.order: canonical`, gradients of group k are
accumulated when groups 0 to k are complete, so the sums are bitwise equal to those of a step that waits for all groups.
`streaming_obstacle` returns the reason why a recipe cannot stream. With several substeps, only the first can start
early: of n samples known so far, the first ceil(n / substeps) certainly belong to it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from kernelrl_core.algorithms.credit import Credit, loss_denominator, training_samples
from kernelrl_core.algorithms.learning_rates import learning_rate
from kernelrl_core.algorithms.loss_shaping import shape_samples, split_evenly
from kernelrl_core.interfaces.policies import PolicyCapabilities, TrainablePolicy
from kernelrl_core.monitoring.costs import CostMeter, spent_on_training
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.episode import logprobs_temperature, reply_limit
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, TrainingSample, Update

__all__ = ["Learner", "StepUpdate", "streaming_obstacle"]

_log = logging.getLogger(__name__)


class Learner:
    """Computes the updates of a policy with the settings of a recipe."""

    def __init__(self, recipe: Recipe, policy: TrainablePolicy, meter: CostMeter, timeline: Timeline) -> None:
        train = recipe.train
        self.recipe, self.policy, self.meter, self.timeline = recipe, policy, meter, timeline
        self.label = f"policy {recipe.policy.use!r}"
        self.loss = Loss(train.loss, train.clip_low, train.clip_high, train.ratio_level)
        self.temperature = logprobs_temperature(recipe)
        self.streams = not streaming_obstacle(recipe, policy.capabilities)

    def begin(self, step: int, n_steps: int, planned: int | None) -> StepUpdate:
        """Start the update of a step. Credits are added as groups become complete.

        Args:
            planned: number of training samples of the step; None if known only at the end.
        """
        return StepUpdate(self, step, learning_rate(self.recipe.train, step, n_steps), planned)


class StepUpdate:
    """The unfinished update of one step."""

    def __init__(self, learner: Learner, step: int, rate: float, planned: int | None) -> None:
        self.learning_rate = rate
        self._learner, self._step, self._planned = learner, step, planned
        self._credits: list[Credit] = []
        self._samples: list[TrainingSample] = []
        self._accumulated: list[int] = []

    async def add(self, credits: Sequence[Credit]) -> None:  # noqa: A002
        """Add the credits of a complete group. Computes gradients of the samples that certainly belong to the first
        substep, if the policy and the recipe allow streaming.

        Raises:
            KernelRLError: the policy failed.
        """
        self._credits += credits
        self._samples += training_samples(credits, self._learner.temperature)
        accumulated = sum(self._accumulated)
        # The first substep has at least this many samples, whatever groups follow.
        certain = -(-len(self._samples) // self._learner.recipe.train.substeps)
        if self._learner.streams and certain > accumulated:
            part = self._samples[accumulated:certain]
            self._accumulated.append(len(part))
            await self._backward(part)

    async def finish(self) -> dict[str, float]:
        """Update the policy with all samples and return the metrics under `train/`. Without samples the update is
        skipped (`train/skipped`: 1).

        Raises:
            BudgetReached: the budget is spent.
            KernelRLError: the policy failed.
        """
        learner, train = self._learner, self._learner.recipe.train
        samples = self._samples
        if not samples:
            return {"train/skipped": 1.0}
        learner.meter.check()
        with learner.timeline.span("training"):
            shaped = shape_samples(
                samples,
                self._denominator(self._credits),
                per_sample=train.weighs_samples,
                mismatch=train.mismatch,
                current=await self._logprobs(samples, "current") if train.needs_current_logprobs else None,
                kl=train.kl,
                reference=await self._logprobs(samples, "reference") if train.kl else None,
                importance_cap=train.importance_cap,
            )
            learner.meter.add(spent_on_training(0, train, scored=_n_tokens(samples)))
            metrics = dict(shaped.metrics)
            if shaped.samples:
                optimizer = OptimizerSettings(
                    self.learning_rate, train.beta1, train.beta2, train.eps, train.weight_decay, train.max_grad_norm
                )
                parts = tuple(map(tuple, split_evenly(shaped.samples, train.substeps)))
                update = Update(self._step, parts, tuple(self._accumulated), learner.loss, optimizer)
                with plugin_boundary(learner.label, "update"):
                    reported = await learner.policy.update(update)
                metrics = {**_finite(reported, f"{learner.label}, step {self._step}"), **metrics}
                later = shaped.samples[sum(self._accumulated) :]
                learner.meter.add(spent_on_training(_n_tokens(later), train, scored=0))
        metrics["skipped"] = float(not shaped.samples)
        own = ("time/", "cost/")
        return {name if name.startswith(own) else f"train/{name}": value for name, value in metrics.items()}

    async def _backward(self, part: Sequence[TrainingSample]) -> None:
        learner = self._learner
        shaped = shape_samples(part, self._denominator([]), per_sample=learner.recipe.train.weighs_samples)
        with learner.timeline.span("training"), plugin_boundary(learner.label, "backward"):
            await learner.policy.backward(shaped.samples, learner.loss)
        learner.meter.add(spent_on_training(_n_tokens(part), learner.recipe.train, scored=0))

    async def _logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        with plugin_boundary(self._learner.label, "logprobs"):
            return await self._learner.policy.logprobs(samples, weights)

    def _denominator(self, credits: Sequence[Credit]) -> float:  # noqa: A002
        recipe = self._learner.recipe
        return loss_denominator(credits, recipe.train, reply_limit(recipe, self._step), self._planned)


def streaming_obstacle(recipe: Recipe, capabilities: PolicyCapabilities) -> str:
    """The reason why gradients must wait for the last group of a step; empty if they need not."""
    train = recipe.train
    if not train.stream:
        return "train.stream is false"
    if not capabilities.streams:
        return f"policy {recipe.policy.use!r} learns from whole steps only"
    if train.length_norm == "tokens" and train.ratio != "sequence":
        return "train.length_norm: tokens needs the number of sampled tokens, which is known only after the last reply"
    if recipe.episode.stop != "never":
        return "episode.stop lets episodes end early, so the number of samples is known only at the end"
    if train.kl:
        return "train.kl subtracts a mean over all tokens of the step"
    if train.mismatch is not None:
        return "train.mismatch rejects samples before they are divided among substeps"
    if train.importance_cap is not None:
        return "train.importance_cap needs log-probabilities of the whole step"
    if train.refill:
        return "train.refill samples other groups at the end"
    return ""


def _n_tokens(samples: Sequence[TrainingSample | LossSample]) -> int:
    return sum(len(sample.prompt_tokens) + len(sample.tokens) for sample in samples)


def _finite(metrics: Mapping[str, float], where: str) -> dict[str, float]:
    """The metrics that can be recorded. A warning names the others."""
    others = sorted(name for name, value in metrics.items() if not math.isfinite(value))
    if others:
        _log.warning("%s: not recorded, because they are not finite: %s", where, ", ".join(others))
    return {name: value for name, value in metrics.items() if name not in others}
