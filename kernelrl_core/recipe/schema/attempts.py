"""How attempts at a task are asked for: prompts, replies, turns, and what a later turn sees."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

__all__ = [
    "BestHistory",
    "EpisodeSettings",
    "Extension",
    "Hardware",
    "HistorySettings",
    "LastHistory",
    "PromptSettings",
    "SamplingOptions",
    "SpeedupStop",
]


@attrs.frozen
class Hardware:
    """GPU described in the prompt, with its specifications."""

    gpu: str
    """Name such as `H100`, or `auto` for the GPU of this machine."""


@attrs.frozen
class PromptSettings:
    """How the core words the prompt."""

    template: str = "kernelrl"
    """`kernelrl`, `kernelbench`, `kevin`, `brief`, or the path of a jinja2 template."""
    shots: Literal["zero", "one", "few"] = "one"
    """Examples of the backend shown: none, one, or all it has."""
    example_turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows the examples."""
    state_precision: bool = True
    """Name the precision and the tolerance."""
    hardware: Hardware | None = None
    """Describe a GPU."""
    max_tokens: PositiveInt | None = None
    """Longest prompt in rendered tokens, before the context's own limit. The oldest history goes first."""
    summary: bool = False
    """Ask for a short summary of the change after the code, and show it in later turns."""
    think_prefix: bool = False
    """Begin the reply with an opening think tag, for models that need the push."""


@attrs.frozen
class Extension:
    """Longer replies from a step on."""

    after_step: NonNegativeInt
    """First step (from 0) with the new limit."""
    max_tokens: PositiveInt
    """The new limit."""


@attrs.frozen
class SamplingOptions:
    """How replies are drawn in training."""

    max_tokens: PositiveInt = PositiveInt(4096)
    """Longest reply in tokens."""
    temperature: NonNegativeFloat = NonNegativeFloat(1.0)
    top_p: Fraction = Fraction(1.0)
    top_k: int = -1
    """-1 keeps every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply."""
    extend: Extension | None = None
    """Raise `max_tokens` at a step."""
    concurrency: PositiveInt | None = None
    """Most replies that are drawn at once; of those that wait, attempts with much before them go first. Null: all."""


@attrs.frozen
class SpeedupStop:
    """End an episode at a correct kernel that is fast enough."""

    speedup: PositiveFloat


@attrs.frozen
class EpisodeSettings:
    """The turns of an attempt."""

    turns: PositiveInt = PositiveInt(1)
    """Most turns of an attempt; 1 is single-turn training."""
    stop: Literal["never", "correct"] | SpeedupStop = "never"
    """When an attempt ends before its last turn."""


@attrs.frozen
class LastHistory:
    """Keep the last attempts."""

    last: PositiveInt


@attrs.frozen
class BestHistory:
    """Keep the attempts with the highest reward, in the order of their turns."""

    best: PositiveInt


@attrs.frozen
class HistorySettings:
    """What a later turn sees of the earlier ones."""

    thinking: Literal["stripped", "kept", "summarised"] = "stripped"
    """What becomes of the thinking of earlier replies."""
    keep: Literal["all"] | LastHistory | BestHistory = "all"
    """Which earlier turns are shown; a token budget drops the oldest of them first."""
    form: Literal["chat", "prompt"] = "chat"
    """`chat`: each attempt as the model's message and its feedback as the user's; `prompt`: all at the end of the one
    message of the user."""
