"""What sampling and training need from a model, whether built from scratch or loaded from Hugging Face."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from kernelrl_core.api.policies import Message, Prompt

__all__ = ["Decoder", "LanguageModel", "Prefix", "PromptAndReply", "Scores", "rendered"]


class PromptAndReply(NamedTuple):
    """A prompt and what is said after it."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


def rendered(model: LanguageModel, messages: Sequence[Message]) -> Prompt:
    """A conversation as the model is to continue it."""
    tokens = model.render(messages)
    return Prompt(tuple(messages), tokens, model.opening(tokens))


class Prefix(NamedTuple):
    """A prompt after its forward pass."""

    cache: Any
    """Keys and values of every layer, in the model's own form."""
    length: int
    """Tokens of the prompt."""
    logits: Tensor
    """[vocabulary] of the first token of the reply, float32."""


class Scores(NamedTuple):
    """Tokens of replies under the present weights, with gradient; all samples one after the other."""

    logprobs: Tensor
    """[n_tokens] natural-log probability of each token at temperature 1."""
    entropy: Tensor
    """[n_tokens] entropy of the distribution it was drawn from, in nats, without gradient."""


class Decoder(Protocol):
    """Several replies growing side by side, one per row, in tensors of fixed shape.

    What a row computes depends on that row alone, bit for bit.
    """

    def admit(self, row: int, prefix: Prefix) -> None:
        """Begin a reply after `prefix` in an idle row."""
        ...

    def release(self, row: int) -> None:
        """End the reply of a row, which is idle from now on."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [rows], ignored in idle rows; returns the logits [rows, vocabulary] that follow, float32."""
        ...


class LanguageModel(Protocol):
    """A causal language model with its tokenizer and chat template."""

    module: torch.nn.Module
    """Holds the parameters; those that require a gradient are trained."""
    context_tokens: int
    stop_tokens: frozenset[int]
    """Tokens that end a reply."""
    device: torch.device
    joins: bool
    """Rows may be admitted to a decoder that has already made steps."""

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation, up to where the reply begins. A last message of the assistant is continued."""
        ...

    def opening(self, prompt: Sequence[int]) -> str:
        """The open think tag with which the chat template has ended a rendered conversation; empty for none."""
        ...

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """Tokens of a whole reply, with the token that ends it."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the tokens of a reply, special tokens left out."""
        ...

    def prefill(self, prompt: Sequence[int]) -> Prefix:
        """Forward pass over one prompt, in a shape that depends on its length alone."""
        ...

    def shape(self, prompt_tokens: int) -> Hashable:
        """What a prompt's length decides about the shape of a decoder: rows of one decoder agree in it."""
        ...

    def decoder(self, rows: int, shape: Hashable) -> Decoder: ...

    def score(self, batch: Sequence[PromptAndReply]) -> Scores:
        """Log-probabilities of replies, for training."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Trained weights by name."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...

    def save_extras(self, directory: Path) -> None:
        """Write what else a fresh process needs, such as the tokenizer."""
        ...
