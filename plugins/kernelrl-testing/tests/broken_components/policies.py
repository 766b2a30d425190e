from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from broken_components import Broken
from kernelrl_core.api.policies import (
    PolicyCapabilities,
    PolicyConfig,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    TrainablePolicy,
    Update,
)


@attrs.frozen
class Config(PolicyConfig):
    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(frozenset({"ppo"}), deterministic=True, streams=True, logprobs=True)


@attrs.frozen
class TemperedConfig(PolicyConfig):
    def capabilities(self) -> PolicyCapabilities:
        return attrs.evolve(Config().capabilities(), tempered=True)


class Coin(TrainablePolicy):
    """Samples four tokens, each 0 or 1, and learns the log-odds of 1."""

    context_tokens = 10_000
    sign = 1.0

    def __init__(self, options: Config) -> None:
        self.capabilities = options.capabilities()
        self.odds = self.gradient = 0.0

    async def start(self, context: PolicyContext) -> None:
        pass

    def render(self, messages: Any) -> Prompt:
        return Prompt(tuple(messages), tuple("".join(message.content for message in messages).encode()))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        return self._drawn(random.Random(f"{settings.seed} {len(prompt.tokens)}"), 4)

    def _drawn(self, draw: random.Random, length: int) -> Reply:
        share = 1 / (1 + math.exp(-self.odds))
        tokens = tuple(int(draw.random() < share) for _ in range(length))
        return Reply("".join(map(str, tokens)), tokens, tuple(map(self._logprob, tokens)), "stop")

    def _logprob(self, token: int) -> float:
        return -math.log1p(math.exp(-self.odds if token else self.odds))

    async def logprobs(self, samples: Any, weights: Any) -> Any:
        return [[self._logprob(token) for token in sample.tokens] for sample in samples]

    async def backward(self, samples: Any, loss: Any) -> None:
        self.gradient += self._gradient_of(samples)

    def _gradient_of(self, samples: Any) -> float:
        share = 1 / (1 + math.exp(-self.odds))
        return math.fsum(
            advantage * (token - share)
            for sample in samples
            for token, advantage in zip(sample.tokens, sample.advantages, strict=True)
        )

    async def update(self, update: Update) -> Any:
        (samples,) = update.substeps
        total = self.gradient + self._gradient_of(samples[sum(update.accumulated) :])
        self.gradient = 0.0
        self.odds += self.sign * total
        return {"loss": -total}

    async def save(self, directory: Path) -> Any:
        (directory / "odds.json").write_text(json.dumps(self.odds))
        return {"file": "odds.json"}

    async def load(self, state: Any, directory: Path) -> None:
        self.odds = json.loads((directory / state["file"]).read_text())

    async def begin_from(self, state: Any, directory: Path) -> None:
        await self.load(state, directory)


class Boasts(Coin):
    def __init__(self, options: Config) -> None:
        super().__init__(options)
        self.capabilities = attrs.evolve(self.capabilities, exports=True)


class Endless(Coin):
    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        return self._drawn(random.Random(settings.seed), settings.max_tokens + 1)


class OfOthers(Coin):
    """A reply depends on the replies before."""

    sampled = 0

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        self.sampled += 1
        return self._drawn(random.Random(self.sampled), 4)


class WrongSign(Coin):
    sign = -1.0


class Padded(Coin):
    """Log-probabilities depend on the number of samples."""

    async def logprobs(self, samples: Any, weights: Any) -> Any:
        found: Sequence[Sequence[float]] = await super().logprobs(samples, weights)
        return [[value - 0.01 * len(samples) for value in row] for row in found]


class Twice(Coin):
    """Counts streamed samples twice."""

    async def update(self, update: Update) -> Any:
        return await super().update(attrs.evolve(update, accumulated=()))


class AlwaysAtOne(Coin):
    """Claims log-probabilities at the sampling temperature, and ignores the temperature."""


_KEPT: dict[str, float] = {}


class InMemory(Coin):
    """Keeps checkpoints in the process."""

    async def save(self, directory: Path) -> Any:
        _KEPT[str(directory)] = self.odds
        return {}

    async def load(self, state: Any, directory: Path) -> None:
        self.odds = _KEPT[str(directory)]


class Rounds(Coin):
    async def load(self, state: Any, directory: Path) -> None:
        self.odds = -9.0


class Ignores(Coin):
    async def begin_from(self, state: Any, directory: Path) -> None:
        self.odds = -9.0


class NotFinite(Coin):
    async def update(self, update: Update) -> Any:
        return {**await super().update(update), "kl": math.nan}


CAPABILITIES = "capabilities_are_within_those_of_the_options"
LIMITS = "replies_keep_the_limits"
REPEATS = "a_deterministic_policy_repeats_a_reply"
GRADIENT = "an_update_raises_better_replies"
TEMPERED = "tempered_log_probabilities_are_those_of_the_sampled_distribution"
STREAMS = "streamed_gradients_equal_waiting"
LOADS = "a_trainable_policy_updates_saves_and_loads"
BEGINS = "a_policy_that_begins_from_saved_weights_samples_the_same"


def reply_here(contract: Any, state: Any, saved: Path) -> Reply:
    """The reply of a policy that this process loads, in place of another process, which takes a second."""
    policy = contract.make()
    asyncio.run(policy.load(state, saved))
    reply: Reply = asyncio.run(policy.sample(policy.render(contract.messages()), contract.settings(3)))
    return reply


def _policy(target: str, *fails: str, elsewhere: bool = False, config: str = "Config") -> Broken:
    attributes = {} if elsewhere else {"reply_elsewhere": reply_here}
    return Broken("policies", f"policies.{target}", fails, f"policies.{config}", attributes)


BROKEN = [
    _policy("Coin", elsewhere=True),
    _policy("Boasts", CAPABILITIES),
    _policy("Endless", LIMITS),
    _policy("OfOthers", REPEATS, LOADS, BEGINS),
    _policy("WrongSign", GRADIENT),
    _policy("Padded", GRADIENT),
    _policy("AlwaysAtOne", TEMPERED, config="TemperedConfig"),
    _policy("Twice", STREAMS),
    _policy("InMemory", LOADS, elsewhere=True),
    _policy("Rounds", LOADS, BEGINS, STREAMS),
    _policy("Ignores", BEGINS),
    _policy("NotFinite", LOADS),
]
