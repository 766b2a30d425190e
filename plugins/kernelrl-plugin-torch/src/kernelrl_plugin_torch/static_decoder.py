"""A decoder of a Hugging Face model that keeps a GPU busy.

The keys and values of all rows are in one tensor of fixed size (static cache), so a row may end and another reply may
start in its place at any step. On a GPU a step is recorded into a CUDA graph and replayed. There is one graph for each
multiple of 256 positions, so attention reads little more than the longest row needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from kernelrl_plugin_torch.language_model import Prefix

__all__ = ["StaticDecoder", "cache_argument", "supports_static_cache"]

_POSITIONS = 256
"""Lengths of the cache are multiples of this many positions."""
_ATTENTION = "kernelrl_static_cache"
_WARM_UP_STEPS = 2
"""Steps before the recording of a graph, in which libraries allocate their workspaces."""


def supports_static_cache(net: Any) -> bool:
    """Whether the decoder computes the attention of this architecture: plain, with equal layers, and replaceable."""
    config = net.config.get_text_config()
    plain = not any(
        getattr(config, name, None) for name in ("sliding_window", "attn_logit_softcapping", "attention_chunk_size")
    )
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    return bool(getattr(net, "_supports_attention_backend", False)) and plain and kinds == {"full_attention"}


def cache_argument(net: Any) -> str:
    """Name of the argument of `forward` that receives the cache: transformers renamed it."""
    model = net.get_base_model() if hasattr(net, "get_base_model") else net
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class StaticDecoder:
    """Rows of replies with a common static cache.

    Args:
        net: the model, with its adapters. `Prefix.cache` is [layer, 2, head, position, size].
        rows: number of rows.
    """

    def __init__(self, net: Any, rows: int) -> None:
        self.rows = rows
        self._net = net
        self._cache_argument = cache_argument(net)
        self._device = net.device
        self._cache: Tensor | None = None
        """[layer, 2, row, head, position, size] keys and values."""
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        """Number of positions -> graph of a step, and its logits."""
        self._weights: list[int] = []
        """Addresses of the weights when the graphs were recorded."""
        self._indices = torch.arange(rows, device=self._device)
        self._tokens = torch.zeros(rows, dtype=torch.long, device=self._device)
        self._lengths = torch.zeros(rows, dtype=torch.long, device=self._device)
        """[row] number of tokens in the cache."""
        self._busy = torch.zeros(rows, dtype=torch.long, device=self._device)
        """[row] 1, or 0 if the row is idle; an idle row writes to its position 0 only."""
        self._known_lengths = [0] * rows
        """[row] lengths as far as the CPU knows them; 0 in idle rows."""

    def clear(self) -> None:
        """Make all rows idle. Graphs are recorded again if the weights have moved; they read them by address."""
        weights = [parameter.data_ptr() for parameter in self._net.parameters()]
        if weights != self._weights:
            self._graphs.clear()
            self._weights = weights
        self._lengths.zero_()
        self._busy.zero_()
        self._known_lengths = [0] * self.rows

    def admit(self, row: int, prefix: Prefix) -> None:
        self._reserve(prefix.length + 1, prefix)
        assert self._cache is not None
        self._cache[:, :, row, :, : prefix.length] = prefix.cache
        self._lengths[row] = prefix.length
        self._busy[row] = 1
        self._known_lengths[row] = prefix.length

    def release(self, row: int) -> None:
        self._lengths[row] = 0
        self._busy[row] = 0
        self._known_lengths[row] = 0

    def step(self, tokens: Tensor) -> Tensor:
        longest = max(self._known_lengths) + 1
        self._reserve(longest)
        positions = -(-longest // _POSITIONS) * _POSITIONS
        self._tokens.copy_(tokens)
        self._known_lengths = [length + 1 if length else 0 for length in self._known_lengths]
        if self._device.type != "cuda":
            return self._forward(positions)
        if positions not in self._graphs:
            self._graphs[positions] = self._recorded(positions)
        graph, logits = self._graphs[positions]
        graph.replay()
        return logits

    def _reserve(self, length: int, prefix: Prefix | None = None) -> None:
        """Let the cache have a multiple of `_POSITIONS` for rows of `length` tokens."""
        available = 0 if self._cache is None else self._cache.shape[4]
        if length <= available:
            return
        positions = -(-length // _POSITIONS) * _POSITIONS
        old = self._cache
        like = old if prefix is None else prefix.cache
        assert like is not None
        layers, pair, heads, size = like.shape[0], 2, like.shape[-3], like.shape[-1]
        self._graphs.clear()
        self._cache = like.new_zeros(layers, pair, self.rows, heads, positions, size)
        if old is not None:
            self._cache[..., :available, :] = old

    def _forward(self, positions: int) -> Tensor:
        """One step of all rows; returns the logits [row, vocabulary], float32."""
        assert self._cache is not None
        layers: list[Any] = [_Layer(pair, self._indices, self._lengths) for pair in self._cache[..., :positions, :]]
        places = torch.arange(positions, device=self._device)
        hidden = (places > self._lengths[:, None])[:, None, None]
        mask = torch.zeros(hidden.shape, dtype=self._cache.dtype, device=self._device)
        mask.masked_fill_(hidden, float("-inf"))
        with _static_attention(self._net):
            out = self._net(
                input_ids=self._tokens[:, None],
                attention_mask=mask,
                position_ids=self._lengths[:, None],
                use_cache=True,
                **{self._cache_argument: Cache(layers=layers)},
            )
        self._lengths += self._busy
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def _recorded(self, positions: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        lengths = self._lengths.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_STEPS):
                self._forward(positions)
                self._lengths.copy_(lengths)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            logits = self._forward(positions)
        self._lengths.copy_(lengths)
        return graph, logits


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call, unused-ignore]
    """The keys and values of a layer [2, row, head, position, size], in which every row has its own length."""

    def __init__(self, pair: Tensor, rows: Tensor, lengths: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.keys: Tensor = pair[0]
        self.values: Tensor = pair[1]
        self.is_initialized = True
        self._rows, self._lengths = rows, lengths

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the tensors exist."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys[self._rows, :, self._lengths] = key_states[:, :, 0]
        self.values[self._rows, :, self._lengths] = value_states[:, :, 0]
        return self.keys, self.values

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return self.keys.shape[2] - 1

    def get_max_cache_shape(self) -> int:
        return self.keys.shape[2]

    def get_max_length(self) -> int:
        return self.keys.shape[2]


def _attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **others: Any
) -> tuple[Tensor, None]:
    """Attention of one token per row.

    The query heads that share a key head are computed as several queries of that head, so that keys and values are
    read once and not repeated.

    Args:
        query: [row, query head, 1, size].
        key, value: [row, head, position, size].
        mask: [row, 1, 1, position].

    Returns:
        [row, 1, query head, size].
    """
    rows, heads, size = query.shape[0], query.shape[1], query.shape[3]
    grouped = query.view(rows, key.shape[1], heads // key.shape[1], size)
    out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(rows, 1, heads, -1), None


AttentionInterface.register(_ATTENTION, _attend)


@contextmanager
def _static_attention(net: Any) -> Iterator[None]:
    """Let the model compute its attention with `_attend`."""
    config = net.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = _ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before
