"""The policy `openai` with a learner: vLLM samples, another policy trains, and vLLM loads the new adapters every step.

Prompts are sent as the learner's tokens, and replies are returned as tokens with log-probabilities, so the learner
trains on exactly the sampled tokens. `train/mismatch` measures the numerical difference between vLLM and the learner.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

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
from kernelrl_plugin_openai.endpoint import Endpoint, IncompleteResponse, readable_logprob, stop_reason

__all__ = ["LearningPolicy"]

_COMPLETIONS = "/completions"
_MAX_LOADED = 2
"""Adapters loaded in the endpoint: the newest, and the one before it, which unfinished replies may still use."""
_REFUSALS = frozenset({500})
"""vLLM's status for adapters that it cannot load, such as those of a rank above its maximum."""


class LearningPolicy(TrainablePolicy):
    """See `Policy`."""

    def __init__(self, options: OpenAIConfig) -> None:
        use = options.learner_use
        assert use is not None, "only created with a learner"
        assert options.adapters is not None, "checked by `OpenAIConfig.problems`"
        self._options, self._use = options, use
        learner = registry().make("policies", use)
        if not isinstance(learner, TrainablePolicy) or not learner.capabilities.exports:
            raise UsageError(
                f"policy openai: learner {use.use!r} cannot export adapters",
                fix="set policy.learner.use=torch",
                see="openai",
            )
        self._learner = learner
        self._directory = options.adapters
        self._endpoint: Endpoint | None = None
        # Unique to this process: an endpoint refuses a name that it has already loaded.
        self._name = f"kernelrl-{os.urandom(4).hex()}"
        self._loaded: list[str] = []
        self._n_exported = 0
        self.capabilities = options.capabilities()
        self.context_tokens = options.context_tokens or 0

    async def start(self, context: PolicyContext) -> None:
        self._endpoint = Endpoint(self._options)
        # The endpoint and the prompt of the probe need a model now, also where other weights follow.
        await self._learner.start(attrs.evolve(context, weights_follow=False))
        self.context_tokens = min(self._learner.context_tokens, self.context_tokens or self._learner.context_tokens)
        await self._publish()
        hello = self._learner.render([Message("user", "Say yes.")])
        await self._endpoint.probe(self._body(hello, _hello_settings()), self._reply, path=_COMPLETIONS)

    def render(self, messages: Sequence[Message]) -> Prompt:
        return self._learner.render(messages)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        return await self._started().request(self._body(prompt, settings), self._reply, path=_COMPLETIONS)

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

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        await self._learner.begin_from(state, directory)
        await self._publish()

    async def aclose(self) -> None:
        try:
            await self._learner.aclose()
        finally:
            if self._endpoint is not None:
                await self._unload(0)
                await self._endpoint.aclose()

    # --- adapters -------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        """Load the learner's adapters into the endpoint; later replies are sampled with them."""
        name = f"{self._name}-{self._n_exported:06d}"
        self._n_exported += 1
        path = self._directory / name
        path.mkdir(parents=True)
        await self._learner.export(path)
        body = {"lora_name": name, "lora_path": str(path.absolute())}
        try:
            await self._started().request(body, _whole, path="/load_lora_adapter", refusals=_REFUSALS)
        except (UsageError, InfrastructureError) as error:
            raise KernelRLError(
                f"the endpoint does not load the adapters in {path}: {error.message}",
                fix="start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora, --max-lora-rank at least "
                f"the learner's rank, and --max-loras {_MAX_LOADED}; it must see this directory under the same path",
                see="openai",
            ) from None
        self._loaded.append(name)
        await self._unload(_MAX_LOADED)

    async def _unload(self, keep: int) -> None:
        while len(self._loaded) > keep:
            name = self._loaded.pop(0)
            try:
                await self._started().request({"lora_name": name}, _whole, path="/unload_lora_adapter", patience_s=0.0)
            except KernelRLError:
                continue  # it may still be in use, so its files must stay
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def _started(self) -> Endpoint:
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

    def _reply(self, response: Any) -> Reply:
        choice = response["choices"][0]
        tokens = tuple(map(int, choice["token_ids"]))
        logprobs = tuple(map(readable_logprob, choice["logprobs"]["token_logprobs"]))
        if len(tokens) != len(logprobs) or not tokens:
            raise IncompleteResponse(f"{len(tokens)} token ids but {len(logprobs)} log-probabilities")
        return Reply(str(choice["text"]), tokens, logprobs, stop_reason(choice["finish_reason"]))


def _hello_settings() -> SamplingSettings:
    return SamplingSettings(max_tokens=1, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=0)


def _whole(response: Any) -> Any:
    return response
