"""The optimizer of a model, with gradient accumulation.

Policy `torch` and the Tinker-compatible server both train through `Learner`, so equal data gives equal weights.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernelrl_core.api.policies import OptimizerSettings
from kernelrl_plugin_torch.language_model import LanguageModel, PromptAndReply, Scores
from kernelrl_plugin_torch.losses import token_loss

__all__ = ["Datum", "Learner", "Totals", "clipped_step", "mean_gap", "micro_batches"]

_log = logging.getLogger(__name__)


class Datum(NamedTuple):
    """A reply and the advantage of each of its tokens."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    sampled: Sequence[float]
    """[len(reply)] sampler log-probabilities."""
    advantages: Sequence[float]
    """[len(reply)] advantages, already divided by the loss denominator: the loss is a plain sum."""
    temperature: float = 1.0
    """Temperature of the log-probabilities."""
    counted: Sequence[bool] | None = None
    """[len(reply)] True for the tokens whose mean is the ratio of the reply (`ratio="sequence"`); None: all."""
    targets: np.ndarray | None = None
    """[len(reply)] or [len(reply), n_targets] tokens, int64, whose log-probabilities are trained in the places of the
    reply's tokens; `sampled` and `advantages` have the same shape. None: the reply itself."""


class Learner:
    """The optimizer of a model."""

    def __init__(self, model: LanguageModel, max_tokens: int, frozen: Collection[str] = ()) -> None:
        """
        Args:
            max_tokens: maximum tokens of prompts and replies in one forward and backward pass.
            frozen: names of parameters that are not trained.
        """
        self._model = model
        self.max_tokens = max_tokens
        trainable = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad]
        self._parameters = [p for name, p in trainable if name not in frozen]
        self._frozen = [p for name, p in trainable if name in frozen]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=0.0, weight_decay=0.0)

    def backward(
        self,
        data: Sequence[Datum],
        loss: str,
        bounds: tuple[float, float],
        totals: Totals,
        ratio: str = "token",
        beta: float = 0.0,
    ) -> list[Tensor]:
        """Accumulate the gradient of a batch, but none within `torch.no_grad()`.

        Args:
            loss, bounds, beta: see `token_loss`.
            totals: the metrics of the batch are added to these.
            ratio: `token` or `sequence`, the probability ratio that the loss uses.

        Returns:
            [datum] trainer log-probabilities of the reply, [len(reply)], or of `Datum.targets`, in their shape.
        """
        # Dropout would change the probabilities, and use a random generator that checkpoints do not contain.
        self._model.module.eval()
        seen: list[Tensor] = []
        for batch in micro_batches(data, self.max_tokens):
            scores = self._model.score(
                [PromptAndReply(datum.prompt, datum.reply, datum.temperature) for datum in batch]
            )
            logprobs = _of_targets(scores, batch)
            device = logprobs.device
            sampled = torch.tensor([x for datum in batch for x in datum.sampled], device=device)
            advantages = torch.tensor([x for datum in batch for x in datum.advantages], device=device)
            lengths = [len(datum.reply) for datum in batch] if ratio == "sequence" else None
            counted = torch.tensor([x for datum in batch for x in _counted(datum)], device=device)
            tokens = token_loss(loss, logprobs, sampled, advantages, bounds, lengths, counted=counted, beta=beta)
            total = tokens.loss.sum()
            if total.requires_grad:
                total.backward()
                for parameter in self._frozen:
                    parameter.grad = None
            trainer = logprobs.detach()
            totals.add(total, tokens.ratio, tokens.clipped, sampled - trainer, scores.entropy)
            seen += trainer.split([len(datum.reply) for datum in batch])
        return seen

    @torch.no_grad()
    def logprobs(self, pairs: Sequence[PromptAndReply]) -> list[list[float]]:
        """[reply][token] log-probabilities under the current weights."""
        self._model.module.eval()
        seen: list[list[float]] = []
        for batch in micro_batches(pairs, self.max_tokens):
            rows = self._model.score(batch).logprobs.split([len(one.reply) for one in batch])
            seen += [row.tolist() for row in rows]
        return seen

    def update(self, settings: OptimizerSettings) -> float:
        """Make one optimizer step; returns the gradient's norm before clipping. See `clipped_step`."""
        for group in self._optimizer.param_groups:
            group.update(
                lr=settings.learning_rate,
                betas=(settings.beta1, settings.beta2),
                eps=settings.eps,
                weight_decay=settings.weight_decay,
            )
        limit = float("inf") if settings.max_grad_norm is None else settings.max_grad_norm
        return clipped_step(self._optimizer, self._parameters, limit)

    def take_gradients(self) -> list[Tensor | None]:
        """Remove and return the accumulated gradients; `put_gradients` restores them."""
        taken = [p.grad for p in self._parameters]
        self._optimizer.zero_grad(set_to_none=True)
        return taken

    def put_gradients(self, taken: Sequence[Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, taken, strict=True):
            parameter.grad = gradient

    def state(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(dict(state))


def clipped_step(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor], max_norm: float) -> float:
    """Clip the gradient, make an optimizer step, and clear the gradient. A gradient that is not finite makes no step,
    because it would leave no weight finite.

    Returns:
        The gradient's norm before clipping.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
    if math.isfinite(norm):
        optimizer.step()
    else:
        _log.warning("a gradient is not finite: no optimizer step")
    optimizer.zero_grad(set_to_none=True)
    return norm


def _counted(datum: Datum) -> Sequence[bool]:
    return (True,) * len(datum.reply) if datum.counted is None else datum.counted


def _of_targets(scores: Scores, batch: Sequence[Datum]) -> Tensor:
    """The log-probabilities of the targets of a batch, all with the same number of targets per token."""
    if all(datum.targets is None for datum in batch):
        return scores.logprobs
    rows = [np.asarray(datum.reply) if datum.targets is None else datum.targets for datum in batch]
    targets = torch.from_numpy(np.concatenate(rows)).to(scores.distribution.device)
    picked = scores.distribution.gather(1, targets.reshape(len(targets), -1))
    return picked.reshape(targets.shape)


class Totals:
    """Metrics of a step, as sums over its tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self.sums = {"loss": 0.0, "ratio_mean": 0.0, "clipped_share": 0.0, "kl": 0.0, "entropy": 0.0}

    def add(self, loss: Tensor, ratio: Tensor, clipped: Tensor, kl: Tensor, entropy: Tensor) -> None:
        self.tokens += len(ratio)
        added = {"loss": loss.detach(), "ratio_mean": ratio, "clipped_share": clipped, "kl": kl, "entropy": entropy}
        for name, values in added.items():
            self.sums[name] += float(values.sum(dtype=torch.float64))

    def metrics(self) -> dict[str, float]:
        """The loss as a sum, the others as means over tokens; `kl` is sampler minus trainer log-probability."""
        means = {name: total / max(self.tokens, 1) for name, total in self.sums.items()}
        return means | {"loss": self.sums["loss"], "tokens": float(self.tokens)}


def micro_batches(replies: Sequence[Any], max_tokens: int) -> Iterator[Sequence[Any]]:
    """Batches of consecutive replies with at most `max_tokens` tokens, or of one longer reply."""
    start = total = 0
    for end, one in enumerate(replies):
        size = len(one.prompt) + len(one.reply)
        if end > start and total + size > max_tokens:
            yield replies[start:end]
            start, total = end, 0
        total += size
    if start < len(replies):
        yield replies[start:]


def mean_gap(sampler: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]) -> float:
    """Mean of |trainer - sampler log-probability| over all tokens; 0 without tokens."""
    gaps = [
        abs(trained - sampled)
        for trainer_row, sampler_row in zip(trainer, sampler, strict=True)
        for trained, sampled in zip(trainer_row, sampler_row, strict=True)
    ]
    return math.fsum(gaps) / max(len(gaps), 1)
