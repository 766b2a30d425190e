"""Options of the policy `scripted`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.api.config import NonNegativeFloat, PositiveInt
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["LOSSES", "ScriptedConfig", "ScriptedReply"]

LOSSES = frozenset({"importance_sampling", "ppo"})


@attrs.frozen
class ScriptedReply:
    """One reply of the script and the prompts it answers."""

    reply: str
    """The whole text."""
    when: str | tuple[str, ...] = ()
    """Texts that must all stand in the prompt, such as a line of the task's reference; empty: any prompt."""
    turn: PositiveInt | None = None
    """Turn of the episode, from 1: one more than the earlier replies that the prompt shows. Null: any turn."""
    logprobs: tuple[float, ...] = ()
    """Log-probabilities of its tokens, which are its UTF-8 bytes and an end; empty: all 0."""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.when,) if isinstance(self.when, str) else tuple(self.when)


@attrs.frozen
class ScriptedConfig(PolicyConfig):
    """Which replies, and how one of several is chosen."""

    path: Path | None = None
    """File with the replies: JSONL with an object per line, or JSON or YAML with a list of objects or texts."""
    replies: tuple[ScriptedReply, ...] = ()
    """The replies themselves, in place of `path`."""
    choose: Literal["seed", "in_order", "cycle"] = "seed"
    """Among the replies that fit a prompt: by the sample's seed, so that runs repeat exactly; each once in the order of
    asking; or in that order again and again."""
    seconds_per_reply: NonNegativeFloat = NonNegativeFloat(0.0)
    """How long a reply takes; replies do not wait for one another."""
    context_tokens: PositiveInt = PositiveInt(1_000_000)
    """Longest prompt and reply together, in bytes."""

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(losses=LOSSES, deterministic=self.choose == "seed")

    def problems(self) -> Iterable[str]:
        if (self.path is None) == (not self.replies):
            yield "give either `path` or `replies`"
