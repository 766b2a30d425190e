"""What the model is asked, what it says, and what is read from that."""

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
"""Id of a token of which only the text is known."""


@attrs.frozen
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@attrs.frozen
class Prompt:
    """A rendered conversation: what the policy is asked to continue."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    """Token ids after the policy's chat template; their number is what every budget counts."""
    opening: str = ""
    """The opening think tag with which the chat template ends (`open_think_tag`): the reply begins inside thinking."""

    @property
    def prefill(self) -> str:
        """What the prompt holds of the reply: `opening`, or else a last message of the assistant."""
        if self.opening or not self.messages or self.messages[-1].role != "assistant":
            return self.opening
        return self.messages[-1].content


def estimated_prompt(messages: Sequence[Message]) -> Prompt:
    """A prompt for a server that applies its own chat template: a token for 3 bytes, and 4 for each message.

    Token ids are unknown: each is `UNKNOWN_TOKEN`.
    """
    size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
    return Prompt(tuple(messages), (UNKNOWN_TOKEN,) * (math.ceil(size / 3) + 4 * len(messages)))


@attrs.frozen
class Reply:
    """One sampled continuation of a prompt."""

    text: str
    """The raw text behind what the prompt holds of the reply (`Prompt.prefill`), thinking included."""
    tokens: tuple[int, ...]
    """[n] sampled token ids, the stop token included when it was sampled."""
    logprobs: tuple[float, ...]
    """[n] natural-log probability of each sampled token under the sampling policy, at temperature 1."""
    stop_reason: Literal["stop", "length"]
    """`stop`: it ends with the model's own end of turn or at a stop string; `length`: it was cut, at `max_tokens` or
    elsewhere."""
    thinking: str | None = None
    """Thinking as parsed by the policy's renderer; None when the renderer does not separate it."""


@attrs.frozen
class KernelFact:
    """A device kernel found in a candidate's source by its backend's driver half."""

    name: str
    line: int
    launched: bool
    """Some call in the source launches it."""
    reached: bool
    """A launch of it can be reached from `ModelNew.forward`."""


@attrs.frozen
class EmbeddedSource:
    """Source of another language inside the Python file."""

    language: str
    """`cuda`, `hip`, `cpp` or `triton`."""
    source: str
    line: int
    """Line of the Python file (from 1) where the text begins."""


@attrs.frozen
class SourceFacts:
    """What a backend can say about a candidate's source without running it."""

    kernels: tuple[KernelFact, ...] = ()
    embedded: tuple[EmbeddedSource, ...] = ()
    unread: str = ""
    """What could not be read, so that kernels and launches may be there that are not among `kernels`; empty for
    nothing."""


@attrs.frozen
class Candidate:
    """A kernel as the model wrote it. The same bytes are checked, evaluated and stored."""

    source: str
    backend: str
    thinking: str = ""
    """Text of the reply's thinking, for rewards that look at it."""
    summary: str = ""
    """The model's own summary of its change, where the prompt asks for one."""
    facts: SourceFacts = SourceFacts()

    @property
    def sha256(self) -> str:
        return sha256_text(self.source)


@attrs.frozen
class Extraction:
    """The one reading of a reply: either a candidate or the reason there is none."""

    candidate: Candidate | None
    problem: Literal["", "no_code", "truncated", "syntax", "no_model"] = ""
    """Empty when there is a candidate."""
    message: str = ""
    """What to tell the model about `problem`."""
    thinking: str = ""
    summary: str = ""
