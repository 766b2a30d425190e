"""Conversion of training samples to the SDK's `Datum`, and the metrics of training passes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from tinker import types

from kernelrl_core.api.policies import Loss, LossSample, OptimizerSettings, TrainingSample

__all__ = ["PassesAhead", "UpdateMetrics", "adam", "datum", "loss_options", "scored_datum"]

T = TypeVar("T")
_METRIC = re.compile(r".*/|:.*")
"""What surrounds the name of a metric: the owner of the name before it, the reduction after it."""


def datum(sample: LossSample) -> types.Datum:
    """A training sample for a policy-gradient loss; prompt positions have advantage 0."""
    return _datum(sample, {"logprobs": sample.sampler_logprobs, "advantages": sample.advantages})


def scored_datum(sample: TrainingSample) -> types.Datum:
    """A training sample for a forward pass that returns its log-probabilities."""
    return _datum(sample, {"weights": [1.0] * len(sample.tokens)})


def _datum(sample: TrainingSample | LossSample, per_token: Mapping[str, Sequence[float]]) -> types.Datum:
    tokens = [*sample.prompt_tokens, *sample.tokens]
    context = [0.0] * (len(sample.prompt_tokens) - 1)
    inputs = {"target_tokens": _tensor(tokens[1:], np.int64)}
    inputs |= {name: _tensor([*context, *values], np.float32) for name, values in per_token.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def _tensor(values: Sequence[float], dtype: Any) -> types.TensorData:
    return types.TensorData.from_numpy(np.asarray(values, dtype))


def loss_options(loss: Loss) -> dict[str, float] | None:
    """Options of a loss. Clipping bounds are always given, since the defaults of servers differ."""
    options = {"sequence_ratio": 1.0} if loss.ratio == "sequence" else {}
    if loss.name != "importance_sampling":
        options |= {"clip_low_threshold": 1 - loss.clip_low, "clip_high_threshold": 1 + loss.clip_high}
    return options or None


def adam(settings: OptimizerSettings) -> types.AdamParams:
    return types.AdamParams(
        learning_rate=settings.learning_rate,
        beta1=settings.beta1,
        beta2=settings.beta2,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        grad_clip_norm=settings.max_grad_norm or 0.0,
    )


class UpdateMetrics:
    """Metrics of an update, accumulated over the tokens of its passes; the same ones as those of policy `torch`."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._n = 0
        self._sums = {"ratio_mean": 0.0, "clipped_share": 0.0, "kl": 0.0}
        self._reported = {"loss": 0.0, "entropy": 0.0}
        self._norms: list[float] = []
        self._mismatch, self._n_mismatch = 0.0, 0
        """Sum of |trainer - sampler log-probability| over the tokens of the first substep, and their number."""
        self._updated = False

    def add_part(self, samples: Sequence[LossSample], output: Any) -> None:
        """Add the output of a forward and backward pass over some samples."""
        rows = trainer_logprobs(samples, output)
        trainer = np.concatenate([*rows, np.zeros(0, np.float32)])
        sampler = np.asarray([x for sample in samples for x in sample.sampler_logprobs], np.float32)
        advantages = np.asarray([x for sample in samples for x in sample.advantages], np.float32)
        log_ratios = [
            row - np.asarray(sample.sampler_logprobs, np.float32) for row, sample in zip(rows, samples, strict=True)
        ]
        if self._loss.ratio == "sequence":
            log_ratios = [np.full_like(row, row.mean()) for row in log_ratios]
        ratio = np.exp(np.concatenate([*log_ratios, np.zeros(0, np.float32)]))
        bounded = ratio.clip(np.float32(1 - self._loss.clip_low), np.float32(1 + self._loss.clip_high))
        if self._loss.name == "ppo":
            clipped = bounded * advantages < ratio * advantages
        else:
            clipped = (bounded != ratio) & (self._loss.name == "cispo")
        self._n += len(trainer)
        for name, values in (("ratio_mean", ratio), ("clipped_share", clipped), ("kl", sampler - trainer)):
            self._sums[name] += float(values.sum(dtype=np.float64))
        for name in self._reported:
            self._reported[name] += float(output.metrics.get(f"{name}:sum", float("nan")))
        if not self._updated:
            self._mismatch += float(np.abs(trainer.astype(np.float64) - sampler).sum())
            self._n_mismatch += len(trainer)

    def add_norm(self, metrics: Mapping[str, float] | None) -> None:
        """Add the metrics of an optimizer step; not every server reports the gradient norm."""
        self._updated = True
        norms = [value for name, value in (metrics or {}).items() if _METRIC.sub("", name) == "grad_norm"]
        self._norms += norms[:1]

    def metrics(self) -> dict[str, float]:
        n = max(self._n, 1)
        row = {name: total / n for name, total in self._sums.items()}
        row |= {"loss": self._reported["loss"], "entropy": self._reported["entropy"] / n}
        row |= {"tokens": float(self._n), "mismatch": self._mismatch / max(self._n_mismatch, 1)}
        if self._norms:
            row["grad_norm"] = sum(self._norms) / len(self._norms)
        return {name: value for name, value in row.items() if value == value}


class PassesAhead:
    """Passes over parts of the first substep that are sent before the whole step is known."""

    def __init__(self, loss: Loss, sizes: Sequence[int] = ()) -> None:
        self._loss = loss
        self.sizes = list(sizes)
        """Number of samples of each pass. A repeated step is split in the same way, so that its rounding is equal."""
        self.done = 0
        """Number of passes that the training client has finished."""
        self.metrics = UpdateMetrics(loss)

    def restart(self) -> None:
        """Mark all passes as not done, for a new training client."""
        self.done, self.metrics = 0, UpdateMetrics(self._loss)

    def left(self, part: Sequence[T]) -> list[Sequence[T]]:
        """The samples of the remaining passes over the first substep `part`."""
        bounds = [0, *accumulate(self.sizes), len(part)]
        return [part[begin:end] for begin, end in list(pairwise(bounds))[self.done :] if end > begin]


def trainer_logprobs(samples: Sequence[TrainingSample | LossSample], output: Any) -> list[np.ndarray]:
    """[sample][token of the reply] trainer log-probabilities from the output of a pass; float32."""
    return [
        np.asarray(row["logprobs"].to_numpy(), np.float32)[len(sample.prompt_tokens) - 1 :]
        for sample, row in zip(samples, output.loss_fn_outputs, strict=True)
    ]
