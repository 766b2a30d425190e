"""The policy `openai` without a learner: samples from a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.policies import (
    UNKNOWN_TOKEN,
    Message,
    Policy,
    PolicyCapabilities,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    estimated_prompt,
)
from kernelrl_plugin_openai.config import OpenAIConfig
from kernelrl_plugin_openai.endpoint import Endpoint, IncompleteResponse, readable_logprob, stop_reason

__all__ = ["OpenAIPolicy", "make_policy"]

_SEED_BITS = 2**31 - 1
"""Many servers store the seed in 32 bits and refuse larger ones."""


def make_policy(options: OpenAIConfig) -> Policy:
    """The policy of the options: `OpenAIPolicy`, or `LearningPolicy` if a learner is set."""
    if options.learner is None:
        return OpenAIPolicy(options)
    from kernelrl_plugin_openai.learning import LearningPolicy

    return LearningPolicy(options)


class OpenAIPolicy(Policy):
    """See `Policy`."""

    capabilities = PolicyCapabilities()

    def __init__(self, options: OpenAIConfig) -> None:
        self._options = options
        self._endpoint: Endpoint | None = None
        self.context_tokens = options.context_tokens or 0

    async def start(self, context: PolicyContext) -> None:
        if context.loss:
            raise UsageError(
                "policy openai cannot train: it has no access to the weights behind an endpoint",
                fix="run kernelrl eval RECIPE, use policy torch or tinker, or set policy.learner with vLLM",
                see="openai",
            )
        endpoint = self._endpoint = Endpoint(self._options)
        hello = {"messages": [{"role": "user", "content": "Say yes."}], **endpoint.limit(16), **self._token_fields()}
        await endpoint.probe(hello, self._reply)
        options = self._options
        length = _context_length(await endpoint.models(), options.model)
        if length is not None:
            self.context_tokens = min(length, options.context_tokens or length)
        if not self.context_tokens:
            raise UsageError(
                f"policy openai: {options.base_url} does not report the context length of {options.model!r}",
                fix="set policy.context_tokens",
                see="openai",
            )

    def render(self, messages: Sequence[Message]) -> Prompt:
        """The messages with an estimated number of tokens: the endpoint applies the chat template."""
        return estimated_prompt(messages)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        if self._endpoint is None:
            raise KernelRLError("the policy was used before start()")
        return await self._endpoint.request(self._body(prompt.messages, settings), self._reply)

    async def aclose(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.aclose()

    def _body(self, messages: Sequence[Message], settings: SamplingSettings) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed & _SEED_BITS,
            **(self._endpoint.limit(settings.max_tokens) if self._endpoint else {}),
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        vllm = self._options.server == "vllm"
        if settings.top_k != -1:
            if not vllm:
                raise UsageError(
                    f"policy openai: OpenAI's API has no parameter for sampling.top_k={settings.top_k}",
                    fix="set sampling.top_k=-1, or policy.server=vllm if the endpoint is vLLM",
                    see="openai",
                )
            body["top_k"] = settings.top_k
        if messages and messages[-1].role == "assistant":
            if not vllm:
                raise UsageError(
                    "policy openai: prompt.think_prefix needs an endpoint that continues an assistant message",
                    fix="set prompt.think_prefix=false, or policy.server=vllm if the endpoint is vLLM",
                    see="openai",
                )
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body | self._token_fields()

    def _token_fields(self) -> dict[str, Any]:
        if not self._options.logprobs:
            return {}
        return {"logprobs": True, **({"return_token_ids": True} if self._options.server == "vllm" else {})}

    def _reply(self, response: Any) -> Reply:
        choice = response["choices"][0]
        reason = stop_reason(choice["finish_reason"])
        message = choice["message"]
        content = message.get("content") or message.get("refusal") or ""
        thinking = message.get("reasoning_content") or message.get("reasoning") or None
        if not isinstance(content, str) or not isinstance(thinking, str | None):
            raise IncompleteResponse("the content is not a string")
        text = f"<think>\n{thinking}\n</think>\n\n{content}" if thinking else content
        if not self._options.logprobs:
            return Reply(text, (), (), reason, thinking, _counted(response.get("usage")))
        logprobs = self._logprobs(choice)
        tokens = tuple(int(token) for token in choice.get("token_ids") or (UNKNOWN_TOKEN,) * len(logprobs))
        if len(tokens) != len(logprobs):
            raise IncompleteResponse(f"{len(tokens)} token ids but {len(logprobs)} log-probabilities")
        return Reply(text, tokens, logprobs, reason, thinking, _counted(response.get("usage")))

    def _logprobs(self, choice: Mapping[str, Any]) -> tuple[float, ...]:
        entries = (choice.get("logprobs") or {}).get("content")
        if entries is None:
            raise IncompleteResponse(
                "it has no log-probabilities of tokens; policy.logprobs=false evaluates without them"
            )
        return tuple(readable_logprob(entry["logprob"]) for entry in entries)


def _counted(usage: Any) -> tuple[int, int] | None:
    """Tokens of prompt and reply in the `usage` of a response, hidden thinking included; None if it has none."""
    if not isinstance(usage, Mapping):
        return None
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(reply, int) or min(prompt, reply) < 0:
        return None
    return prompt, reply


def _context_length(models: Mapping[str, Any], name: str) -> int | None:
    """Context length in the description of a model: `max_model_len` of vLLM and SGLang, `context_length` of gateways,
    `meta.n_ctx` of llama.cpp; of LoRA adapters that of their `parent`. None if it has none."""
    model = models.get(name)
    meta = getattr(model, "meta", None)
    names = (getattr(model, "max_model_len", None), getattr(model, "context_length", None))
    found = (*names, meta.get("n_ctx") if isinstance(meta, Mapping) else None)
    own = next((length for length in found if isinstance(length, int) and length > 0), None)
    parent = getattr(model, "parent", None)
    if own is None and isinstance(parent, str) and parent != name:
        others = {other: facts for other, facts in models.items() if other != name}
        return _context_length(others, parent)
    return own
