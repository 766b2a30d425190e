"""Options of the policy `openai`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.components import RecipeError, Use, component_block, registry
from kernelrl_core.api.config import PositiveFloat, PositiveInt
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["OpenAIConfig"]

_RESERVED = frozenset({"messages", "model", "n", "stream", "logprobs", "max_tokens", "max_completion_tokens", "seed"})


@attrs.frozen
class OpenAIConfig(PolicyConfig):
    """The endpoint, its model, and time limits."""

    model: str
    """Name under which the endpoint serves the model."""
    base_url: str = "https://api.openai.com/v1"
    """URL of the API, up to and including `/v1`."""
    server: Literal["compatible", "openai", "vllm"] = "compatible"
    """Request parameters of the endpoint. `compatible`: those that nearly all endpoints accept; `openai`: those of
    OpenAI's own service (`max_completion_tokens`); `vllm`: also those of vLLM (token ids, `sampling.top_k`,
    `prompt.think_prefix`)."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the API key. Null: the endpoint needs no key."""
    context_tokens: PositiveInt | None = None
    """Maximum tokens of prompt and reply together. A smaller length that the endpoint reports applies; vLLM and
    llama.cpp report one, OpenAI does not. Null: that of the endpoint."""
    logprobs: bool = True
    """Request the log-probability of each token. Set false for endpoints without them; the tokens of a reply are then
    counted by the endpoint only."""
    resend: bool = True
    """Send a request again that may already cost something: after a timeout, a broken connection or an unusable
    response. False: that reply is lost."""
    max_concurrent: PositiveInt = PositiveInt(32)
    """Maximum number of concurrent requests."""
    timeout_s: PositiveFloat = PositiveFloat(600.0)
    """Time limit of one request, in seconds."""
    patience_s: PositiveFloat = PositiveFloat(600.0)
    """Seconds for which a request is retried while the endpoint is overloaded or unreachable."""
    extra_body: Mapping[str, Any] = attrs.field(factory=dict)
    """Additional fields of every request, as the endpoint documents them, such as `reasoning_effort`."""
    learner: Mapping[str, Any] | None = None
    """Policy block that trains LoRA adapters of the same model, such as `{use: torch, model: …, lora_rank: 16}`. Null:
    no training."""
    adapters: Path | None = None
    """With `learner`: directory where adapters are written. The endpoint must see it under the same path."""

    @property
    def learner_use(self) -> Use | None:
        """The learner with its options.

        Raises:
            RecipeError: its block is invalid.
        """
        if self.learner is None:
            return None
        return component_block("policy", self.learner, registry())

    def capabilities(self) -> PolicyCapabilities:
        learner = self.learner_use
        if learner is None:
            return PolicyCapabilities()
        theirs: PolicyCapabilities = learner.options.capabilities()
        # The endpoint samples with the adapters of the last step, so the learner's streaming and export do not apply.
        # Its log-probabilities are those at temperature 1.
        return attrs.evolve(theirs, deterministic=False, streams=False, exports=False, tempered=False)

    def requires(self) -> Requires:
        needs = Requires(modules=("openai",))
        if self.api_key_env is not None:
            fix = f"export {self.api_key_env}=…, or write it to .env; policy.api_key_env=null if no key is needed"
            needs = attrs.evolve(needs, environment=(self.api_key_env,), fix=fix)
        learner = self.learner_use
        if learner is not None:
            theirs: Requires = learner.options.requires()
            fix = "; ".join(filter(None, (needs.fix, theirs.fix)))
            modules = (*needs.modules, *theirs.modules)
            needs = attrs.evolve(needs, modules=modules, gpu=theirs.gpu, fix=fix)
        return needs

    def context_limit(self) -> int | None:
        return self.context_tokens

    def problems(self) -> Iterable[str]:
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # not quoted: its text contains the address, which may hold a password
            usable = False
        if not usable:
            yield "base_url must be a URL such as http://127.0.0.1:8000/v1"
        if "@" in self.base_url or "?" in self.base_url:
            # The run directory keeps the recipe, which therefore must not contain a secret.
            yield "base_url must have no user, password or query; set the key in the variable of api_key_env"
        for key in sorted(_RESERVED & set(self.extra_body)):
            yield f"extra_body must not set {key!r}, which kernelrl sets from the recipe"
        yield from self._problems_of_learning()

    def _problems_of_learning(self) -> Iterable[str]:
        if self.learner is None:
            if self.adapters is not None:
                yield "adapters has no effect without learner"
            return
        if self.server != "vllm":
            yield "learner needs an endpoint that loads adapters: set server: vllm"
        if self.adapters is None:
            yield "learner needs adapters: a directory that the endpoint also sees"
        if not self.logprobs:
            yield "learner needs logprobs: true"
        try:
            found = self.learner_use
        except RecipeError as error:
            for problem in error.problems:
                yield f"learner{problem.path.removeprefix('policy')}: {problem.message}; {problem.hint}".rstrip("; ")
        else:
            if found is not None and not getattr(found.options, "lora_rank", None):
                yield "learner must train LoRA adapters, since the endpoint loads nothing else: set its lora_rank"
