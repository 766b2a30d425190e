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
    learner: Mapping[str, Any] | None = None
    """Policy that trains adapters of the same model, as a block of its own, such as `{use: torch, model: …, lora_rank:
    16}`. Null: this policy cannot learn."""
    adapters: Path | None = None
    """With `learner`: directory that the endpoint sees under the same path; adapters are written there."""

    @property
    def learner_use(self) -> Use | None:
        """The learner with its options.

        Raises:
            RecipeError: mistakes in its block.
        """
        if self.learner is None:
            return None
        return component_block("policy", self.learner, registry())

    def capabilities(self) -> PolicyCapabilities:
        learner = self.learner_use
        if learner is None:
            return PolicyCapabilities()
        theirs: PolicyCapabilities = learner.options.capabilities()
        # Replies come from the endpoint, and each step's adapters are published once.
        return attrs.evolve(theirs, deterministic=False, streams=False, exports=False)

    def requires(self) -> Requires:
        needs = Requires(modules=("openai",))
        if self.api_key_env is not None:
            fix = f"export {self.api_key_env}=…, or write it into .env; policy.api_key_env=null where none is asked for"
            needs = attrs.evolve(needs, environment=(self.api_key_env,), fix=fix)
        learner = self.learner_use
        if learner is not None:
            theirs: Requires = learner.options.requires()
            fix = "; ".join(filter(None, (needs.fix, theirs.fix)))
            modules = (*needs.modules, *theirs.modules)
            needs = attrs.evolve(needs, modules=modules, gpu=theirs.gpu, fix=fix)
        return needs

    def problems(self) -> Iterable[str]:
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # its text would show the address
            usable = False
        if not usable:
            yield "base_url must be an address such as http://127.0.0.1:8000/v1"
        if "@" in self.base_url or "?" in self.base_url:
            # A recipe is saved with the run and must hold no secret.
            yield "base_url must hold no user, password or query; a key belongs into the variable of api_key_env"
        for key in sorted(_RESERVED & set(self.extra_body)):
            yield f"extra_body must not set {key!r}, which comes from the recipe"
        yield from self._problems_of_learning()

    def _problems_of_learning(self) -> Iterable[str]:
        if self.learner is None:
            if self.adapters is not None:
                yield "adapters needs learner"
            return
        if self.server != "vllm":
            yield "learner needs an endpoint that takes adapters: server: vllm"
        if self.adapters is None:
            yield "learner needs adapters, a directory that the endpoint sees as well"
        if not self.logprobs:
            yield "learner needs logprobs"
        try:
            found = self.learner_use
        except RecipeError as error:
            for problem in error.problems:
                yield f"learner{problem.path.removeprefix('policy')}: {problem.message}; {problem.hint}".rstrip("; ")
        else:
            if found is not None and not getattr(found.options, "lora_rank", None):
                yield "learner must train adapters, which alone can be given to the endpoint: set its lora_rank"
