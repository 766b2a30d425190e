"""A small decoder-only transformer that is fast on one CPU core; it also runs on a GPU.

Pre-norm blocks with rotary positions. All query heads share one key and value head (multi-query attention, Shazeer
2019), so that the key-value cache fits into the CPU caches. Input and output embeddings are tied.

Shapes: R rows, T tokens of a row, D width, H heads, E = D / H, C context, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.policies import Message
from kernelrl_plugin_torch.devices import usable_device
from kernelrl_plugin_torch.language_model import Prefix, PromptAndReply, Scores, tempered
from kernelrl_plugin_torch.scratch_tokenizer import ScratchTokenizer

__all__ = ["TOKENIZER_FILE", "ScratchModel", "described_weights"]

TOKENIZER_FILE = "tokenizer.json"
_SHORT_SPANS = (64, 128)
_BLOCK = 512
"""Keys per block in PyTorch's attention kernel for CPUs."""


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm_attention = nn.RMSNorm(width)
        self.norm_mlp = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def project(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [..., H, E], keys and values [..., 1, E] of x [..., D]."""
        qkv = self.qkv(self.norm_attention(x)).unflatten(-1, (self.heads + 2, self.size))
        rotated = _rotate(qkv[..., :-1, :], *rotation)
        return rotated[..., :-1, :], rotated[..., -1:, :], qkv[..., -1:, :]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the block after attention; attended [..., D]."""
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class _Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, context: int, seed: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim == 2:
                    last = name.endswith(("out.weight", "down.weight"))
                    std = 0.02 if "embedding" in name else parameter.shape[1] ** -0.5 * (0.3 if last else 1.0)
                    parameter.normal_(0.0, std, generator=generator)
        size = width // heads
        frequency = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.outer(torch.arange(context, dtype=torch.float64), frequency)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., 1, E/2] for positions [...]; the 1 is the dimension of the heads."""
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)

    def embed(self, tokens: Tensor) -> Tensor:
        # Tied embeddings are small, as the output needs; this scale gives the input the size of the blocks' outputs.
        return self.embedding(tokens) * self.embedding.embedding_dim**0.5

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: list[tuple[Tensor, Tensor]] | None = None
    ) -> Tensor:
        """Hidden states [R, T, D] of tokens [R, T].

        Args:
            mask: [R, 1, T, T] attention mask; None: causal.
            cache: keys and values [R, 1, T, E] of every layer are appended.
        """
        rotation = self.rotation(positions)
        x = self.embed(tokens)
        for block in self.blocks:
            query, key, value = (part.transpose(1, 2) for part in block.project(x, rotation))
            if cache is not None:
                cache.append((key, value))
            heads = (-1, block.heads, -1, -1)
            attended = F.scaled_dot_product_attention(
                query, key.expand(heads), value.expand(heads), attn_mask=mask, is_causal=mask is None
            )
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight)


def described_weights(weights: Mapping[str, Tensor]) -> str:
    """The sizes of a model in words, from its weights."""
    width = weights["embedding.weight"].shape[1]
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    size = (weights["blocks.0.qkv.weight"].shape[0] - width) // 2
    return f"one from scratch (width {width}, layers {layers}, heads {width // size})"


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class _Decoder:
    """A decoder whose rows have independent positions, with a cache for the whole context.

    Attention covers a span that is rounded up from the longest row. Positions beyond a row's end have weight 0 and do
    not change its sums, if the span is one of `_span`; `sampler.rows_agree` verifies this.
    """

    def __init__(self, net: _Transformer, rows: int, context: int, device: torch.device) -> None:
        size = net.blocks[0].size
        self._net = net
        self._keys = [torch.zeros(rows, 1, context, size, device=device) for _ in net.blocks]
        self._values = [torch.zeros(rows, 1, context, size, device=device) for _ in net.blocks]
        self._ends = torch.zeros(rows, dtype=torch.long, device=device)
        self._rows = torch.arange(rows, device=device)
        self._places = torch.arange(context, device=device)
        self._context = context

    def admit(self, row: int, prefix: Prefix) -> None:
        for keys, values, (key, value) in zip(self._keys, self._values, prefix.cache, strict=True):
            keys[row, :, : prefix.length] = key[0]
            values[row, :, : prefix.length] = value[0]
        self._ends[row] = prefix.length

    def release(self, row: int) -> None:
        self._ends[row] = 0

    def step(self, tokens: Tensor) -> Tensor:
        ends = self._ends
        span = min(_span(int(ends.max()) + 1), self._context)
        visible = (self._places[:span] <= ends[:, None])[:, None, None]
        mask = torch.zeros(visible.shape, device=ends.device).masked_fill_(~visible, float("-inf"))
        rotation = self._net.rotation(ends)
        x = self._net.embed(tokens)
        for block, keys, values in zip(self._net.blocks, self._keys, self._values, strict=True):
            query, key, value = block.project(x, rotation)
            keys[self._rows, 0, ends] = key[:, 0]
            values[self._rows, 0, ends] = value[:, 0]
            # The heads take the place of the sequence dimension: [R, 1, H, E] over keys [R, 1, span, E].
            attended = F.scaled_dot_product_attention(
                query.unsqueeze(1), keys[:, :, :span], values[:, :, :span], attn_mask=mask
            )
            x = block.finish(x, attended.flatten(1))
        self._ends = torch.where(ends > 0, ends + 1, 0)
        return self._net.logits(self._net.norm(x))


def _span(length: int) -> int:
    """Smallest span of at least `length`. Matrix products over other spans than these add in another order."""
    return next((span for span in _SHORT_SPANS if span >= length), -(-length // _BLOCK) * _BLOCK)


class ScratchModel:
    """The `LanguageModel` from scratch, with its tokenizer."""

    joins = True
    prefill_prompts = 1

    def __init__(
        self,
        tokenizer: ScratchTokenizer,
        *,
        width: int,
        layers: int,
        heads: int,
        context_tokens: int,
        seed: int,
        device: str = "cpu",
    ) -> None:
        """
        Raises:
            MissingPrerequisite: the device does not exist.
        """
        self.device = usable_device(device)
        self.tokenizer = tokenizer
        self.sizes = {"width": width, "layers": layers, "heads": heads}
        self.context_tokens = context_tokens
        self.stop_tokens = frozenset({tokenizer.end})
        # Initialised on the CPU, so that a seed gives the same weights on every device.
        self._net = _Transformer(tokenizer.size, width, layers, heads, context_tokens, seed).to(self.device)
        self.module = self._net

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(self.tokenizer.render(messages))

    def opening(self, prompt: Sequence[int]) -> str:
        return ""

    def encode_reply(self, text: str) -> tuple[int, ...]:
        return (*self.tokenizer.encode(text), self.tokenizer.end)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Prefix]:
        (prompt,) = prompts
        cache: list[tuple[Tensor, Tensor]] = []
        tokens = torch.tensor([prompt], device=self.device)
        hidden = self._net(tokens, torch.arange(len(prompt), device=self.device)[None], None, cache)
        return [Prefix(cache, len(prompt), self._net.logits(hidden[0, -1:])[0])]

    def shape(self, prompt_tokens: int) -> Hashable:
        return self.context_tokens

    def decoder(self, rows: int, shape: Hashable) -> _Decoder:
        return _Decoder(self._net, rows, self.context_tokens, self.device)

    def score(self, batch: Sequence[PromptAndReply]) -> Scores:
        """Log-probabilities of replies. Consecutive replies to the same prompt share its computation: they are packed
        into one row after the prompt, and a mask prevents attention between replies."""
        packs = [_Pack(prompt, [pair.reply for pair in group]) for prompt, group in groupby(batch, lambda s: s.prompt)]
        longest = max(len(pack.tokens) for pack in packs)
        tokens, positions, parts = (
            torch.tensor([row + [filler] * (longest - len(row)) for row in rows], device=self.device)
            for rows, filler in (
                ([pack.tokens for pack in packs], 0),
                ([pack.positions for pack in packs], 0),
                ([pack.parts for pack in packs], -1),
            )
        )
        seen = (parts[:, None, :] == 0) | (parts[:, None, :] == parts[:, :, None])
        hidden = self._net(tokens, positions, torch.tril(seen)[:, None])
        before = [row * longest + place for row, pack in enumerate(packs) for place in pack.before]
        places = torch.tensor(before, device=self.device)
        targets = torch.tensor([token for pack in packs for token in pack.targets], device=self.device)
        logits = self._net.logits(hidden.flatten(0, 1)[places])
        distribution = F.log_softmax(tempered(logits, batch), dim=-1)
        with torch.no_grad():
            entropy = -(distribution.exp() * distribution).sum(-1)
        return Scores(distribution.gather(1, targets[:, None])[:, 0], entropy, distribution)

    def state(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(state)

    def save_extras(self, directory: Path) -> None:
        write_atomically(directory / TOKENIZER_FILE, self.tokenizer.to_json())


class _Pack:
    """A prompt and its replies, packed into one row."""

    def __init__(self, prompt: Sequence[int], replies: Sequence[Sequence[int]]) -> None:
        self.tokens = list(prompt)
        self.positions = list(range(len(prompt)))
        self.parts = [0] * len(prompt)
        """For each token of the row, 0 for the prompt or the number of its reply, from 1."""
        self.before: list[int] = []
        """For each reply token, the position in the row whose hidden state predicts it."""
        self.targets: list[int] = []
        for number, reply in enumerate(replies, start=1):
            if not reply:
                continue
            start = len(self.tokens)
            fed = len(reply) - 1
            self.tokens += reply[:-1]
            self.positions += range(len(prompt), len(prompt) + fed)
            self.parts += [number] * fed
            self.before += [len(prompt) - 1, *range(start, start + fed)]
            self.targets += reply
