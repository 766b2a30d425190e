"""The policy `openai` with a learner: an endpoint of vLLM samples, another policy learns, and adapters go from one to
the other after every step.

Prompts are sent as the learner's tokens and replies come back as tokens with their log-probabilities, so what is
learnt is what was drawn. How far the two differ in their arithmetic is measured like any other mismatch of sampler and
trainer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kernelrl_core.api.components import registry
from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
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
from kernelrl_plugin_openai.config import OpenAIConfig
from kernelrl_plugin_openai.endpoint import Endpoint, IncompleteResponse, readable_logprob

__all__ = ["LearningPolicy"]

_COMPLETIONS = "/completions"
_KEPT = 2
"""Adapters that the endpoint holds: the newest, and the one that replies under way may be using."""


class LearningPolicy(TrainablePolicy):
    """See `Policy`."""

    def __init__(self, options: OpenAIConfig) -> None:
        use = options.learner_use
        assert use is not None, "made only where there is a learner"
        assert options.adapters is not None, "checked with the options"
        self._options, self._use = options, use
        learner = registry().make("policies", use)
        if not isinstance(learner, TrainablePolicy) or not learner.capabilities.exports:
            raise UsageError(f"policy openai: learner {use.use!r} cannot export adapters", fix="use torch as learner")
        self._learner = learner
        self._directory = options.adapters
        self._endpoint: Endpoint | None = None
        # Of this process alone: an endpoint refuses a name that it has had.
        self._name = f"kernelrl-{os.urandom(4).hex()}"
        self._loaded: list[str] = []
        self._n_exported = 0
        self.capabilities = options.capabilities()
        self.context_tokens = options.context_tokens or 0

    async def start(self, context: PolicyContext) -> None:
        self._endpoint = Endpoint(self._options)
        await self._learner.start(context)
        self.context_tokens = min(self._learner.context_tokens, self.context_tokens or self._learner.context_tokens)
        await self._publish()
        hello = self._learner.render([Message("user", "Say yes.")])
        await self._endpoint.probe(self._body(hello, _hello_settings()), self._reply, path=_COMPLETIONS)

    def render(self, messages: Sequence[Message]) -> Prompt:
        return self._learner.render(messages)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        return await self._there().ask(self._body(prompt, settings), self._reply, path=_COMPLETIONS)

    async def update(self, update: Update) -> Mapping[str, float]:
        metrics = await self._learner.update(update)
        await self._publish()
        return metrics

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        return await self._learner.logprobs(samples, weights)

    async def save(self, directory: Path) -> Mapping[str, Any]:
        return await self._learner.save(directory)

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        await self._learner.load(state, directory)
        await self._publish()

    async def aclose(self) -> None:
        try:
            await self._learner.aclose()
        finally:
            if self._endpoint is not None:
                await self._forget(0)
                await self._endpoint.aclose()

    # --- adapters -------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        """Give the learner's adapters to the endpoint; replies are drawn with them from here on."""
        name = f"{self._name}-{self._n_exported:06d}"
        self._n_exported += 1
        path = self._directory / name
        path.mkdir(parents=True)
        await self._learner.export(path)
        body = {"lora_name": name, "lora_path": str(path.absolute())}
        try:
            await self._there().ask(body, _whole, path="/load_lora_adapter")
        except (UsageError, InfrastructureError) as error:
            raise KernelRLError(
                f"the endpoint does not take the adapters in {path}: {error.message}",
                fix="start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, with --max-lora-rank at "
                f"least the learner's rank and --max-loras {_KEPT}, where it sees this directory under the same path",
            ) from None
        self._loaded.append(name)
        await self._forget(_KEPT)

    async def _forget(self, keep: int) -> None:
        while len(self._loaded) > keep:
            name = self._loaded.pop(0)
            try:
                await self._there().ask({"lora_name": name}, _whole, path="/unload_lora_adapter", patience_s=0.0)
            except KernelRLError:
                continue  # it fills a place there, and the endpoint needs its files as long as it may be used
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def _there(self) -> Endpoint:
        if self._endpoint is None:
            raise KernelRLError("the policy was used before start()")
        return self._endpoint

    # --- replies --------------------------------------------------------------------------------------------------

    def _body(self, prompt: Prompt, settings: SamplingSettings) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._loaded[-1],
            "prompt": list(prompt.tokens),
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "seed": settings.seed,
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        return body | ({"stop": list(settings.stop), "include_stop_str_in_output": True} if settings.stop else {})

    def _reply(self, answer: Any) -> Reply:
        choice = answer["choices"][0]
        tokens = tuple(map(int, choice["token_ids"]))
        logprobs = tuple(map(readable_logprob, choice["logprobs"]["token_logprobs"]))
        if len(tokens) != len(logprobs) or not tokens:
            raise IncompleteResponse(f"it has {len(tokens)} token ids and {len(logprobs)} log-probabilities")
        reason: Literal["stop", "length"] = "length" if choice["finish_reason"] == "length" else "stop"
        return Reply(str(choice["text"]), tokens, logprobs, reason)


def _hello_settings() -> SamplingSettings:
    return SamplingSettings(max_tokens=1, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=0)


def _whole(answer: Any) -> Any:
    return answer
