"""Prompts, replies, and the candidates extracted from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import attrs

from kernelrl_core.types.hashes import sha256_text

__all__ = [
    "UNKNOWN_TOKEN",
    "Candidate",
    "EmbeddedSource",
    "Extraction",
    "KernelFact",
    "Message",
    "Prompt",
    "Reply",
    "SourceFacts",
    "estimated_prompt",
]


UNKNOWN_TOKEN = -1
"""Token id of a token whose text is known and whose id is not."""


@attrs.frozen
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    """Author of the message."""
    content: str
    """Text of the message."""


@attrs.frozen
class Prompt:
    """Rendered messages that the policy continues."""

    messages: tuple[Message, ...]
    """Messages before the chat template."""
    tokens: tuple[int, ...]
    """Token ids after the policy's chat template. All token limits count these."""
    opening: str = ""
    """Open think tag at the end of the chat template (`open_think_tag`); then the reply begins inside thinking."""

    @property
    def prefill(self) -> str:
        """Beginning of the reply that the prompt contains: `opening`, else a last message with role `assistant`."""
        if self.opening or not self.messages or self.messages[-1].role != "assistant":
            return self.opening
        return self.messages[-1].content


def estimated_prompt(messages: Sequence[Message]) -> Prompt:
    """Prompt for a server that applies its own chat template. Token ids are unknown: each is `UNKNOWN_TOKEN`.

    The length is an estimate: one token per 3 bytes, plus 4 per message.
    """
    size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
    return Prompt(tuple(messages), (UNKNOWN_TOKEN,) * (math.ceil(size / 3) + 4 * len(messages)))


@attrs.frozen
class Reply:
    """Tokens and text that the policy sampled for one prompt."""

    text: str
    """Raw text after the prefill (`Prompt.prefill`), including thinking."""
    tokens: tuple[int, ...]
    """[n] sampled token ids, including the stop token if it was sampled."""
    logprobs: tuple[float, ...]
    """[n] natural-log probabilities of the sampled tokens under the sampling policy, at temperature 1."""
    stop_reason: Literal["stop", "length"]
    """`stop`: ended with the model's end-of-turn token or a stop string; `length`: cut off, at `max_tokens` or
    elsewhere."""
    thinking: str | None = None
    """Thinking as parsed by the policy's renderer; None if the renderer does not separate it."""
    counted: tuple[int, int] | None = None
    """Tokens of the prompt and of the reply as the endpoint counts them for its bill; None if it does not tell, or if
    `tokens` are all of them."""


@attrs.frozen
class KernelFact:
    """A device kernel that the backend found in a candidate's source."""

    name: str
    """Name of the kernel function."""
    line: int
    """Line of the definition in the Python file, from 1."""
    launched: bool
    """True if a call in the source launches it."""
    reached: bool
    """True if a launch of it is reachable from `ModelNew.forward`."""


@attrs.frozen
class EmbeddedSource:
    """Source in another language inside the Python file."""

    language: str
    """`cuda`, `hip`, `cpp` or `triton`."""
    source: str
    """Text of the source."""
    line: int
    """Line of the Python file, from 1, where the text begins."""


@attrs.frozen
class SourceFacts:
    """Result of parsing a candidate's source with its backend."""

    kernels: tuple[KernelFact, ...] = ()
    """Device kernels of the source."""
    embedded: tuple[EmbeddedSource, ...] = ()
    """Sources in other languages inside the Python file."""
    unread: str = ""
    """Parts that could not be parsed and may contain further kernels and launches; empty: the source was parsed
    completely."""
    own_modules: tuple[str, ...] = ()
    """Top-level modules of the user's package, which the candidate may import."""


@attrs.frozen
class Candidate:
    """Kernel source extracted from a reply. The same bytes are checked, evaluated and stored."""

    source: str
    """Python source that defines `ModelNew`."""
    backend: str
    """Name of the backend in the recipe."""
    thinking: str = ""
    """Text of the reply's thinking, for reward components that read it."""
    summary: str = ""
    """The model's summary of its change, if the prompt requests one."""
    facts: SourceFacts = SourceFacts()
    """Kernels and embedded sources, as parsed by the backend."""

    @property
    def sha256(self) -> str:
        """Hash of `source`: 64 hexadecimal digits."""
        return sha256_text(self.source)


@attrs.frozen
class Extraction:
    """Result of parsing a reply: a candidate, or the reason why there is none."""

    candidate: Candidate | None
    """The candidate; None if the reply has no usable code."""
    problem: Literal["", "no_code", "truncated", "syntax", "no_model"] = ""
    """Reason why there is no candidate; empty if there is one."""
    message: str = ""
    """Description of `problem` for the model."""
    thinking: str = ""
    """Text of the reply's thinking."""
    summary: str = ""
    """The model's summary of its change, if the prompt requests one."""
