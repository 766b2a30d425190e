"""The interface that sampling and training need from a model, from scratch or of Hugging Face."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, Prompt

__all__ = ["Decoder", "LanguageModel", "Prefix", "PromptAndReply", "Scores", "rendered", "tempered", "undefined_model"]


class PromptAndReply(NamedTuple):
    """Tokens of a prompt and of its reply."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    temperature: float = 1.0
    """Temperature of the log-probabilities of the reply: its logits are divided by it."""


def rendered(model: LanguageModel, messages: Sequence[Message]) -> Prompt:
    """The prompt of some messages; a final assistant message is the prefill of the reply."""
    tokens = model.render(messages)
    return Prompt(tuple(messages), tokens, model.opening(tokens))


def undefined_model() -> UsageError:
    """The error of a model that computes NaN."""
    return UsageError(
        "the model of the policy computes NaN: some of its weights are NaN or infinite",
        fix="replace its files; if training did it, kernelrl run RECIPE --from RUN@CHECKPOINT with a lower "
        "train.learning_rate",
        see="hugging-face",
    )


class Prefix(NamedTuple):
    """A prompt after its forward pass."""

    cache: Any
    """Keys and values of every layer, in the model's own format."""
    length: int
    """Number of prompt tokens."""
    logits: Tensor
    """[vocabulary] logits of the first token of the reply, float32."""


def tempered(logits: Tensor, batch: Sequence[PromptAndReply]) -> Tensor:
    """Logits of reply tokens, divided by the temperatures of their replies.

    Args:
        logits: [n_tokens, vocabulary], replies concatenated.
    """
    temperatures = [pair.temperature for pair in batch for _ in pair.reply]
    if all(temperature == 1.0 for temperature in temperatures):
        return logits
    return logits / torch.tensor(temperatures, dtype=logits.dtype, device=logits.device)[:, None]


class Scores(NamedTuple):
    """Log-probabilities and entropies of reply tokens under the current weights, replies concatenated."""

    logprobs: Tensor
    """[n_tokens] natural-log probability of each token at the temperature of its reply, with gradient."""
    entropy: Tensor
    """[n_tokens] entropy of the distribution of each token, in nats, without gradient."""
    distribution: Tensor
    """[n_tokens, vocabulary] log-probabilities of all tokens in the place of each, with gradient."""


class Decoder(Protocol):
    """Decodes several replies in a batch, one per row, in tensors of fixed shape.

    The result of a row depends bitwise only on that row.
    """

    def admit(self, row: int, prefix: Prefix) -> None:
        """Start a reply after `prefix` in an idle row."""
        ...

    def release(self, row: int) -> None:
        """End the reply of a row, which becomes idle."""
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
    """True if `Decoder.admit` is allowed after the decoder's first step."""

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's tokens; a final assistant message is the prefill of the reply."""
        ...

    def opening(self, prompt: Sequence[int]) -> str:
        """The open think tag with which the chat template ends a rendered prompt; empty: none."""
        ...

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """Tokens of a whole reply, including its end token."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the tokens of a reply, without stop tokens."""
        ...

    prefill_prompts: int
    """Maximum number of prompts in one call of `prefill`."""

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Prefix]:
        """Run the forward pass over prompts. With one prompt the shape depends only on its length."""
        ...

    def shape(self, prompt_tokens: int) -> Hashable:
        """Key of the decoder shape for a prompt's length; all rows of one decoder have the same key."""
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
        """Write the files, other than the weights, that a new process needs, such as the tokenizer."""
        ...
