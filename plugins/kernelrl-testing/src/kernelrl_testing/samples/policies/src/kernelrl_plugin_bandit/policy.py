"""The policy `bandit`."""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kernelrl_core.api.policies import (
    Message,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    TrainablePolicy,
    TrainingSample,
    Update,
)
from kernelrl_plugin_bandit.options import BanditConfig


class Bandit(TrainablePolicy):
    """A softmax over the replies. Each reply is one token: its index."""

    context_tokens = 100_000

    def __init__(self, config: BanditConfig) -> None:
        self.capabilities = config.capabilities()
        self._replies = config.replies
        self._logits = [0.0] * len(config.replies)

    async def start(self, context: PolicyContext) -> None:
        context.say(f"policy bandit: {len(self._replies)} replies")

    def render(self, messages: Sequence[Message]) -> Prompt:
        text = "\n".join(message.content for message in messages)
        return Prompt(tuple(messages), tuple(text.encode()))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        weights = _softmax([logit / max(settings.temperature, 1e-6) for logit in self._logits])
        (token,) = random.Random(settings.seed).choices(range(len(weights)), weights)
        return Reply(self._replies[token], (token,), (math.log(_softmax(self._logits)[token]),), "stop")

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        now = _softmax(self._logits)
        return [[math.log(now[token]) for token in sample.tokens] for sample in samples]

    async def update(self, update: Update) -> Mapping[str, float]:
        loss = 0.0
        for substep in update.substeps:
            now, gradient = _softmax(self._logits), [0.0] * len(self._logits)
            for sample in substep:
                (token,), (before,), (advantage,) = sample.tokens, sample.sampler_logprobs, sample.advantages
                weighted = advantage * now[token] / math.exp(before)
                loss -= weighted
                gradient = [
                    slope + weighted * ((index == token) - probability)
                    for index, (slope, probability) in enumerate(zip(gradient, now, strict=True))
                ]
            rate = update.optimizer.learning_rate
            self._logits = [logit + rate * slope for logit, slope in zip(self._logits, gradient, strict=True)]
        return {"loss": loss}

    async def save(self, directory: Path) -> Mapping[str, Any]:
        return {"logits": self._logits}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        self._logits = list(state["logits"])


def _softmax(logits: Sequence[float]) -> list[float]:
    exponentials = [math.exp(logit - max(logits)) for logit in logits]
    return [value / sum(exponentials) for value in exponentials]
