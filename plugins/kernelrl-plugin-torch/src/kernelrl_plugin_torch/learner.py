"""Training steps: batches of samples into optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from kernelrl_core.kinds import OptimizerSettings, TrainingSample, TrainingStep
from kernelrl_plugin_torch.language_model import LanguageModel, Spoken
from kernelrl_plugin_torch.losses import token_loss

__all__ = ["Learner", "micro_batches", "parts"]


class Learner:
    """The optimizer of a model."""

    def __init__(self, model: LanguageModel, max_tokens: int) -> None:
        """`max_tokens`: most tokens of prompts and replies in one forward and backward pass."""
        self._model = model
        self._max_tokens = max_tokens
        self._parameters = [p for p in model.module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=0.0, weight_decay=0.0)

    def train(self, step: TrainingStep) -> dict[str, float]:
        """Exactly `min(substeps, n)` optimizer steps over consecutive parts of the samples."""
        # Dropout would make other probabilities than sampling saw, and draw on a generator that no checkpoint holds.
        self._model.module.eval()
        totals = _Totals()
        norms: list[float] = []
        for part in parts(step.samples, step.substeps):
            for batch in micro_batches(part, self._max_tokens):
                self._accumulate(batch, step, totals)
            norms.append(self._update(step.optimizer))
        return totals.metrics() | {"grad_norm": sum(norms) / len(norms) if norms else 0.0}

    def _accumulate(self, batch: Sequence[TrainingSample], step: TrainingStep, totals: _Totals) -> None:
        scores = self._model.score([Spoken(sample.prompt_tokens, sample.tokens) for sample in batch])
        device = scores.logprobs.device
        sampled = torch.tensor([x for sample in batch for x in sample.logprobs], device=device)
        advantages = torch.tensor([sample.advantage for sample in batch for _ in sample.tokens], device=device)
        tokens = token_loss(scores.logprobs, sampled, advantages, step.loss)
        loss = tokens.loss.sum() / step.loss.normaliser
        if loss.requires_grad:
            loss.backward()
        totals.add(loss, tokens.ratio, tokens.clipped, sampled - scores.logprobs.detach(), scores.entropy)

    def _update(self, settings: OptimizerSettings) -> float:
        """One optimizer step; returns the gradient's norm before clipping."""
        for group in self._optimizer.param_groups:
            group.update(
                lr=settings.learning_rate,
                betas=(settings.beta1, settings.beta2),
                eps=settings.eps,
                weight_decay=settings.weight_decay,
            )
        limit = float("inf") if settings.max_grad_norm is None else settings.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def state(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(dict(state))


class _Totals:
    """Sums over the tokens of a step."""

    def __init__(self) -> None:
        self._n = 0
        self._sums = {"loss": 0.0, "ratio_mean": 0.0, "clipped_share": 0.0, "kl": 0.0, "entropy": 0.0}

    def add(self, loss: Tensor, ratio: Tensor, clipped: Tensor, kl: Tensor, entropy: Tensor) -> None:
        self._n += len(ratio)
        added = {"loss": loss.detach(), "ratio_mean": ratio, "clipped_share": clipped, "kl": kl, "entropy": entropy}
        for name, values in added.items():
            self._sums[name] += float(values.sum(dtype=torch.float64))

    def metrics(self) -> dict[str, float]:
        """Loss as a sum, the others as means over tokens; `kl` is log p_sampled - log p_now, before each update."""
        means = {name: total / max(self._n, 1) for name, total in self._sums.items()}
        return means | {"loss": self._sums["loss"], "tokens": float(self._n)}


def parts(samples: Sequence[TrainingSample], n: int) -> list[Sequence[TrainingSample]]:
    """At most `n` consecutive parts, none empty, whose sizes differ by 1 at most; larger ones first."""
    n = min(n, len(samples))
    bounds = [-(-len(samples) * index // n) for index in range(n + 1)] if n else []
    return [samples[start:end] for start, end in pairwise(bounds)]


def micro_batches(samples: Sequence[TrainingSample], max_tokens: int) -> Iterator[Sequence[TrainingSample]]:
    """Consecutive samples that hold at most `max_tokens` tokens together, or one sample that alone holds more."""
    start = total = 0
    for end, sample in enumerate(samples):
        size = len(sample.prompt_tokens) + len(sample.tokens)
        if end > start and total + size > max_tokens:
            yield samples[start:end]
            start, total = end, 0
        total += size
    if start < len(samples):
        yield samples[start:]
