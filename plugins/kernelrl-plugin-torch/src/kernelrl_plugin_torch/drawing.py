"""Sampling of one token per row from logits.

Every row has its own random number from [0, 1) and inverts its own cumulative distribution, so a token depends only on
its row. Probabilities are computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelrl_core.api.policies import SamplingSettings

__all__ = ["HostCopy", "draw", "keep_mask", "uniforms"]


def uniforms(seed: int, n: int) -> list[float]:
    """The first `n` random numbers in [0, 1) of a reply's seed, from a counter-based generator (Philox)."""
    numbers: list[float] = np.random.Generator(np.random.Philox(seed)).random(n).tolist()
    return numbers


class HostCopy:
    """Copies of tensors on the CPU. The constructor only starts the copies, before any later work of a GPU."""

    def __init__(self, *tensors: Tensor) -> None:
        self._copies = tensors
        self._done: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            # A copy to other than pinned memory would wait for the GPU.
            pinned = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
            for copy, tensor in zip(pinned, tensors, strict=True):
                copy.copy_(tensor, non_blocking=True)
            self._copies = tuple(pinned)
            self._done = torch.cuda.Event()
            self._done.record()

    def lists(self) -> list[list[Any]]:
        """The values, after the copies have ended."""
        if self._done is not None:
            self._done.synchronize()
        return [copy.tolist() for copy in self._copies]


def draw(logits: Tensor, numbers: Tensor, settings: Sequence[SamplingSettings | None]) -> tuple[Tensor, Tensor]:
    """Sample one token for each row.

    Args:
        logits: [rows, vocabulary].
        numbers: [rows] random numbers in [0, 1), float64, on the CPU.
        settings: [rows] settings, None for an idle row.

    Returns:
        Tokens, and their natural-log probabilities at `logprobs_temperature` without top_p and top_k; both [rows], on
        the device of the logits. A log-probability is NaN if a logit of its row is.
    """
    logits = logits.double()
    temperature = [1.0 if s is None or s.temperature == 0 else s.temperature for s in settings]
    weights = torch.softmax(logits / torch.tensor(temperature, dtype=torch.float64, device=logits.device)[:, None], -1)
    for row, s in enumerate(settings):
        if s is None:
            continue
        if s.temperature == 0:
            weights[row] = torch.nn.functional.one_hot(logits[row].argmax(), logits.shape[1])
        elif s.top_p < 1 or s.top_k > 0:
            weights[row] *= keep_mask(weights[row], s.top_p, s.top_k)
    ladder = weights.cumsum(-1)
    points = numbers.to(logits.device)[:, None] * ladder[:, -1:]
    tokens = torch.searchsorted(ladder, points, right=True)
    # After rounding a point can equal the total, which is past the last token with a positive weight.
    last = torch.searchsorted(ladder, ladder[:, -1:].contiguous())
    # With logits that are NaN both are past the end.
    tokens = torch.minimum(tokens, last).clamp(max=logits.shape[1] - 1)
    divisors = [1.0 if s is None else s.logprobs_temperature for s in settings]
    scaled = logits / torch.tensor(divisors, dtype=torch.float64, device=logits.device)[:, None]
    logprobs = scaled.gather(1, tokens) - scaled.logsumexp(-1, keepdim=True)
    return tokens[:, 0], logprobs[:, 0]


def keep_mask(weights: Tensor, top_p: float, top_k: int) -> Tensor:
    """Mask of the tokens that may be sampled: the `top_k` most probable, of these the fewest with a share of `top_p`.

    Args:
        weights: [vocabulary] probabilities.
        top_p: share of the total probability after `top_k`; the most probable token is always kept.
        top_k: number of tokens; below 1: all.

    Returns:
        [vocabulary] 1 or 0. Of equal probabilities the smaller token id comes first.
    """
    ordered, order = weights.sort(descending=True, stable=True)
    if top_k > 0:
        ordered[top_k:] = 0
    before = ordered.cumsum(-1) - ordered
    kept = (before < top_p * ordered.sum()) & (ordered > 0)
    kept[0] = True
    return torch.zeros_like(weights).index_put_(
        (order[kept],), torch.ones((), dtype=weights.dtype, device=weights.device)
    )
