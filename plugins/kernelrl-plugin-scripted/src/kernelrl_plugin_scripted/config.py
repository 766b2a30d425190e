"""Options of the policy `scripted`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.api.config import NonNegativeFloat, PositiveInt
from kernelrl_core.api.errors import nearest_path
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["LOSSES", "ScriptedConfig", "ScriptedReply"]

LOSSES = frozenset({"importance_sampling", "ppo"})


@attrs.frozen
class ScriptedReply:
    """One reply of the script, and the prompts that it matches."""

    reply: str
    """Text of the reply."""
    when: str | tuple[str, ...] = ()
    """Texts that the prompt must all contain, such as a line of the task's reference. Empty: any prompt."""
    turn: PositiveInt | None = None
    """Turn of the episode, from 1: the number of earlier replies in the prompt, plus 1. Null: any turn."""
    logprobs: tuple[float, ...] = ()
    """Log-probabilities of its tokens: one for each UTF-8 byte and one for the end token. Empty: all 0."""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.when,) if isinstance(self.when, str) else tuple(self.when)


@attrs.frozen
class ScriptedConfig(PolicyConfig):
    """The replies, and the choice among several matching ones."""

    check_options = {"replies": [{"reply": "one"}, {"reply": "two"}]}  # noqa: RUF012

    path: Path | None = None
    """File with the replies: JSONL with one object per line, or JSON or YAML with a list of objects or strings."""
    replies: tuple[ScriptedReply, ...] = ()
    """The replies, in place of `path`."""
    choose: Literal["seed", "in_order", "cycle"] = "seed"
    """Choice among the replies that match a prompt. `seed`: by the sample's seed, which makes runs deterministic;
    `in_order`: each reply once, in the order of the requests; `cycle`: in order, repeated."""
    seconds_per_reply: NonNegativeFloat = NonNegativeFloat(0.0)
    """Seconds that one reply takes; replies are concurrent."""
    context_tokens: PositiveInt = PositiveInt(1_000_000)
    """Maximum tokens of prompt and reply together. A token is a byte."""

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(losses=LOSSES, deterministic=self.choose == "seed")

    def context_limit(self) -> int | None:
        return self.context_tokens

    def problems(self) -> Iterable[str]:
        if (self.path is None) == (not self.replies):
            yield "set exactly one of `path` and `replies`"
        elif self.path is not None and not self.path.is_file():
            yield f"path: no such file: {self.path}{nearest_path(self.path)}"
