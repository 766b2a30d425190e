"""The policy `scripted`: replies from a file, in place of a model.

Tokens are the UTF-8 bytes of the text and an end token. An update changes nothing; it returns metrics of its input.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.policies import (
    Message,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    TrainablePolicy,
    Update,
)
from kernelrl_plugin_scripted.config import ScriptedConfig, ScriptedReply
from kernelrl_plugin_scripted.script import read_script

__all__ = ["ScriptedPolicy"]

_END = 256
_ROLES = {"system": 257, "user": 258, "assistant": 259}


class ScriptedPolicy(TrainablePolicy):
    """See `Policy`."""

    def __init__(self, options: ScriptedConfig) -> None:
        self._options = options
        self._script: tuple[ScriptedReply, ...] = options.replies
        self._used: Counter[tuple[int, ...]] = Counter()
        self._of_turn: dict[int, tuple[tuple[int, ...], bool]] = {}
        """Entries for a turn, and whether one of them is for some prompts only."""
        """Set of matching replies, by index -> number of requests."""
        self._steps = 0
        self.context_tokens: int = options.context_tokens
        self.capabilities = options.capabilities()

    async def start(self, context: PolicyContext) -> None:
        path = self._options.path
        if path is not None:
            self._script = await asyncio.to_thread(read_script, path)
        for number, reply in enumerate(self._script, start=1):
            expected = len(_bytes(reply.reply)) + 1
            if reply.logprobs and len(reply.logprobs) != expected:
                raise UsageError(
                    f"reply {number} of the script has {len(reply.logprobs)} logprobs for {expected} tokens"
                )

    def render(self, messages: Sequence[Message]) -> Prompt:
        tokens: list[int] = []
        for message in messages:
            tokens += (_ROLES[message.role], *_bytes(message.content), _END)
        if messages and messages[-1].role == "assistant":
            tokens.pop()
        else:
            tokens.append(_ROLES["assistant"])
        return Prompt(tuple(messages), tuple(tokens))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        chosen = self._choose(prompt, settings.seed)
        if self._options.seconds_per_reply:
            await asyncio.sleep(self._options.seconds_per_reply)
        text = chosen.reply
        ends = [text.find(stop) + len(stop) for stop in settings.stop if stop in text]
        text = text[: min(ends)] if ends else text
        tokens = (*_bytes(text), _END)
        cut = len(tokens) > settings.max_tokens
        tokens = tokens[: settings.max_tokens]
        logprobs = chosen.logprobs[: len(tokens)] or (0.0,) * len(tokens)
        if cut:
            text = bytes(tokens).decode("utf-8", "ignore")
        return Reply(text, tokens, logprobs, "length" if cut else "stop")

    def _choose(self, prompt: Prompt, seed: int) -> ScriptedReply:
        words = "\n".join(message.content for message in prompt.messages)
        # A final assistant message is the prefill of this reply, not an earlier one.
        turn = 1 + sum(message.role == "assistant" for message in prompt.messages[:-1])
        if turn not in self._of_turn:
            found = [(index, entry) for index, entry in enumerate(self._script) if entry.turn in (None, turn)]
            self._of_turn[turn] = tuple(index for index, _ in found), any(entry.texts for _, entry in found)
        fitting, depends_on_prompt = self._of_turn[turn]
        if depends_on_prompt:
            fitting = tuple(index for index in fitting if all(text in words for text in self._script[index].texts))
        if not fitting:
            raise UsageError(
                f"the script has no reply for turn {turn} of the prompt that ends in {words[-80:]!r}",
                fix="add an entry whose `when` and `turn` match, or one without them",
                see="scripted",
            )
        if self._options.choose == "seed":
            return self._script[fitting[seed % len(fitting)]]
        used = self._used[fitting]
        self._used[fitting] += 1
        if self._options.choose == "in_order" and used >= len(fitting):
            raise UsageError(
                f"the script has {len(fitting)} replies for turn {turn} of the prompt that ends in {words[-80:]!r}; "
                "one more was requested",
                fix="add replies, or set policy.choose=cycle",
                see="scripted",
            )
        return self._script[fitting[used % len(fitting)]]

    async def update(self, update: Update) -> Mapping[str, float]:
        self._steps += 1
        tokens = [advantage for substep in update.substeps for sample in substep for advantage in sample.advantages]
        return {
            "loss": -sum(tokens),
            "grad_norm": 0.0,
            "ratio_mean": 1.0,
            "clipped_share": 0.0,
            "kl": 0.0,
            "tokens": float(len(tokens)),
        }

    async def save(self, directory: Path) -> Mapping[str, Any]:
        return {"steps": self._steps, "used": [[list(fitting), n] for fitting, n in self._used.items()]}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        try:
            self._steps = int(state["steps"])
            self._used = Counter({tuple(fitting): n for fitting, n in state["used"]})
        except (KeyError, TypeError, ValueError) as error:
            raise KernelRLError(f"not a checkpoint of policy scripted: {error!r}") from error

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        """Begin with the first replies: the policy has no weights."""

    async def aclose(self) -> None:
        """Do nothing: no resource is open."""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
