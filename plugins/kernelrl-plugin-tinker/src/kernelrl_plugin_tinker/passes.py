"""Training samples in the SDK's form, and the metrics of training passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from tinker import types

from kernelrl_core.api.policies import Loss, LossSample, OptimizerSettings, TrainingSample

__all__ = ["PassesAhead", "UpdateMetrics", "adam", "datum", "loss_options", "scored_datum"]

T = TypeVar("T")


def datum(sample: LossSample) -> types.Datum:
    """A sample for a policy-gradient loss: positions of the prompt have weight 0."""
    return _datum(sample, {"logprobs": sample.sampler_logprobs, "advantages": sample.advantages})


def scored_datum(sample: TrainingSample) -> types.Datum:
    """A sample whose log-probabilities are asked for."""
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
    """Bounds of the ratio, which are always said: a server's own defaults are its own affair."""
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
    """Sums over the tokens of a step; the same numbers that policy `torch` reports."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._n = 0
        self._sums = {"ratio_mean": 0.0, "clipped_share": 0.0, "kl": 0.0}
        self._told = {"loss": 0.0, "entropy": 0.0}
        self._norms: list[float] = []
        self._gaps, self._n_gaps = 0.0, 0
        """Sum over the tokens of the first substep of |log p_train - log p_sample|, and their number."""
        self._updated = False

    def add_part(self, samples: Sequence[LossSample], output: Any) -> None:
        """Add the output of a forward and backward pass over some samples."""
        rows = present_logprobs(samples, output)
        now = np.concatenate([*rows, np.zeros(0, np.float32)])
        then = np.asarray([x for sample in samples for x in sample.sampler_logprobs], np.float32)
        worth = np.asarray([x for sample in samples for x in sample.advantages], np.float32)
        gaps = [
            row - np.asarray(sample.sampler_logprobs, np.float32) for row, sample in zip(rows, samples, strict=True)
        ]
        if self._loss.ratio == "sequence":
            gaps = [np.full_like(row, row.mean()) for row in gaps]
        ratio = np.exp(np.concatenate([*gaps, np.zeros(0, np.float32)]))
        bounded = ratio.clip(np.float32(1 - self._loss.clip_low), np.float32(1 + self._loss.clip_high))
        if self._loss.name == "ppo":
            clipped = bounded * worth < ratio * worth
        else:
            clipped = (bounded != ratio) & (self._loss.name == "cispo")
        self._n += len(now)
        for name, values in (("ratio_mean", ratio), ("clipped_share", clipped), ("kl", then - now)):
            self._sums[name] += float(values.sum(dtype=np.float64))
        for name in self._told:
            self._told[name] += float(output.metrics.get(f"{name}:sum", float("nan")))
        if not self._updated:
            self._gaps += float(np.abs(now.astype(np.float64) - then).sum())
            self._n_gaps += len(now)

    def add_norm(self, metrics: Mapping[str, float] | None) -> None:
        """What an optimizer step said; a server need not tell the gradient's norm."""
        self._updated = True
        told = [value for name, value in (metrics or {}).items() if name.partition(":")[0] == "grad_norm"]
        self._norms += told[:1]

    def metrics(self) -> dict[str, float]:
        n = max(self._n, 1)
        row = {name: total / n for name, total in self._sums.items()}
        row |= {"loss": self._told["loss"], "entropy": self._told["entropy"] / n}
        row |= {"tokens": float(self._n), "mismatch": self._gaps / max(self._n_gaps, 1)}
        if self._norms:
            row["grad_norm"] = sum(self._norms) / len(self._norms)
        return {name: value for name, value in row.items() if value == value}


class PassesAhead:
    """Passes over the first substep that come before the rest of a step is known."""

    def __init__(self, loss: Loss, sizes: Sequence[int] = ()) -> None:
        self._loss = loss
        self.sizes = list(sizes)
        """Samples of each pass. A repeated step is divided in the same way, so that its sums are rounded alike."""
        self.done = 0
        """How many of the passes the training client has made."""
        self.metrics = UpdateMetrics(loss)

    def restart(self) -> None:
        """Nothing is made yet: the training client is a new one."""
        self.done, self.metrics = 0, UpdateMetrics(self._loss)

    def left(self, part: Sequence[T]) -> list[Sequence[T]]:
        """The first substep in the pieces that are still to be made."""
        bounds = [0, *accumulate(self.sizes), len(part)]
        return [part[begin:end] for begin, end in list(pairwise(bounds))[self.done :] if end > begin]


def present_logprobs(samples: Sequence[TrainingSample | LossSample], output: Any) -> list[np.ndarray]:
    """[sample][token of the reply] log-probabilities that a pass reports."""
    return [
        np.asarray(row["logprobs"].to_numpy(), np.float32)[len(sample.prompt_tokens) - 1 :]
        for sample, row in zip(samples, output.loss_fn_outputs, strict=True)
    ]
