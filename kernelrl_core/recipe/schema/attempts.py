"""Recipe keys of one episode: prompts, sampling, turns, and the history that later turns see."""

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
    """The GPU whose specifications the prompt describes."""

    gpu: str
    """Name, such as `H100`, or `auto` for the GPU of this machine."""


@attrs.frozen
class PromptSettings:
    """Content of the prompt."""

    template: str = "kernelrl"
    """Bundled template (`kernelrl`, `kernelbench`, `kevin`, `brief`), or the path of a jinja2 template."""
    shots: Literal["zero", "one", "few"] = "one"
    """Number of the backend's own examples in the prompt: `zero`, `one`, or `few` (all of them)."""
    example_turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows the examples: the first, or all. No effect with one turn or `shots: zero`."""
    state_precision: bool = True
    """State the precision and the tolerance in the prompt."""
    hardware: Hardware | None = None
    """GPU that the prompt describes. Null: none."""
    max_tokens: PositiveInt | None = None
    """Maximum prompt length in tokens; the oldest history is removed first. Null: the context of the policy is the only
    limit."""
    summary: bool = False
    """Request a short summary of the change after the code, and show it in later turns. `history.thinking: summarised`
    requests it, too."""
    think_prefix: bool = False
    """Prefill the reply with an opening think tag, for models that do not start to think on their own."""


@attrs.frozen
class Extension:
    """A higher reply limit from a given step on."""

    after_step: NonNegativeInt
    """First step with the new limit, counted from 0."""
    max_tokens: PositiveInt
    """New limit in tokens; above `sampling.max_tokens`."""


@attrs.frozen
class SamplingOptions:
    """Sampling of replies. `eval.temperature` overrides the temperature in held-out evaluation."""

    max_tokens: PositiveInt = PositiveInt(4096)
    """Maximum reply length in tokens. A reply that reaches it is truncated."""
    temperature: NonNegativeFloat = NonNegativeFloat(1.0)
    """Sampling temperature; 0 takes the most probable token."""
    top_p: Fraction = Fraction(1.0)
    """Nucleus sampling: sample from the most probable tokens with this total probability. 1: all tokens. No effect at
    temperature 0."""
    top_k: int = -1
    """Sample from the k most probable tokens. -1: all tokens. No effect at temperature 0."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply, in addition to the model's end-of-turn token."""
    extend: Extension | None = None
    """Raise `max_tokens` from a step on. Null: never."""
    concurrency: PositiveInt | None = None
    """Maximum number of replies sampled concurrently. Waiting episodes with the most remaining work are served first.
    Null: no limit."""


@attrs.frozen
class SpeedupStop:
    """End an episode at a correct kernel that is fast enough."""

    speedup: PositiveFloat
    """Least speedup that ends the episode. Requires `evaluation.timing`."""


@attrs.frozen
class EpisodeSettings:
    """Turns of an episode."""

    turns: PositiveInt = PositiveInt(1)
    """Maximum turns of an episode; 1 is single-turn training."""
    stop: Literal["never", "correct"] | SpeedupStop = "never"
    """End an episode early: `never`, at the first `correct` kernel, or at a correct kernel with `{speedup: X}`. No
    effect with one turn."""


@attrs.frozen
class LastHistory:
    """Show the most recent turns."""

    last: PositiveInt
    """Number of turns shown."""


@attrs.frozen
class BestHistory:
    """Show the turns with the highest score, in chronological order, and always the most recent one."""

    best: PositiveInt
    """Number of turns shown, beside the most recent one."""


@attrs.frozen
class HistorySettings:
    """Content of earlier turns in later prompts. No effect with one turn (`episode.turns`)."""

    thinking: Literal["stripped", "kept", "summarised"] = "stripped"
    """Thinking of earlier replies: removed (`stripped`), shown (`kept`), or replaced by the model's own summary
    (`summarised`)."""
    keep: Literal["all"] | LastHistory | BestHistory = "all"
    """Earlier turns shown: `all`, the `last` n, or the `best` n by score. If they exceed the token limit, the oldest
    are removed first."""
    form: Literal["chat", "prompt"] = "chat"
    """`chat`: each earlier reply is an assistant message and its feedback a user message. `prompt`: all of them are at
    the end of the single user message."""
