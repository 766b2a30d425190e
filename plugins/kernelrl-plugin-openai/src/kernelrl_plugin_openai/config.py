"""Options of the policy `openai`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_core.component import Requires
from kernelrl_core.recipe.schema import PositiveFloat, PositiveInt

__all__ = ["OpenAIConfig"]

_RESERVED = frozenset({"messages", "model", "n", "stream", "logprobs", "max_tokens", "max_completion_tokens", "seed"})


@attrs.frozen
class OpenAIConfig:
    """Which endpoint and model, and how long it may keep us waiting."""

    model: str
    """Name under which the endpoint serves the model."""
    base_url: str = "https://api.openai.com/v1"
    """Address of the endpoint, up to and including `/v1`."""
    server: Literal["compatible", "openai", "vllm"] = "compatible"
    """What the endpoint understands: what nearly all of them do; the parameters of OpenAI's own service
    (`max_completion_tokens`); or those of vLLM too (token ids, `sampling.top_k`, `prompt.think_prefix`)."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null where the endpoint asks for none."""
    context_tokens: PositiveInt | None = None
    """Longest prompt and reply together. Null asks the endpoint, which vLLM answers and OpenAI does not."""
    logprobs: bool = True
    """Ask for the log-probability of each token. False for endpoints that have none: samples then count no tokens."""
    max_concurrent: PositiveInt = PositiveInt(32)
    """Most requests under way at once."""
    timeout_s: PositiveFloat = PositiveFloat(600.0)
    """How long one request may take."""
    patience_s: PositiveFloat = PositiveFloat(600.0)
    """How long a request is repeated while the endpoint is overloaded or away."""
    extra_body: Mapping[str, Any] = attrs.field(factory=dict)
    """Further fields of every request, as the endpoint documents them, such as `reasoning_effort`."""

    def requires(self) -> Requires:
        if self.api_key_env is None:
            return Requires(modules=("openai",))
        fix = f"export {self.api_key_env}=…, or write it into .env; policy.api_key_env=null where no key is asked for"
        return Requires(modules=("openai",), environment=(self.api_key_env,), fix=fix)

    def problems(self) -> Iterable[str]:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield "base_url must be an address such as http://127.0.0.1:8000/v1"
        if parts.username or parts.password or parts.query:
            # A recipe is saved with the run and must hold no secret.
            yield "base_url must hold no user, password or query; a key belongs into the variable of api_key_env"
        for key in sorted(_RESERVED & set(self.extra_body)):
            yield f"extra_body must not set {key!r}, which comes from the recipe"
