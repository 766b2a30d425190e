'''Policies: the model that samples replies and, where it is trainable, learns from them.

The core composes prompts and computes advantages; a policy renders, samples, learns and saves itself.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_policies():
        return [Component("constant", "my_plugin.constant:Constant", config="my_plugin.constant:ConstantConfig")]

    # my_plugin/constant.py
    import attrs

    from kernelrl_core.api.policies import (
        LossSample, PolicyCapabilities, PolicyConfig, Prompt, Reply, TrainablePolicy, Update
    )

    @attrs.frozen
    class ConstantConfig(PolicyConfig):
        text: str = "no kernel"
        """The reply to every prompt."""

        def capabilities(self):
            return PolicyCapabilities(losses=frozenset({"ppo"}), deterministic=True)

    class Constant(TrainablePolicy):
        context_tokens = 100_000

        def __init__(self, config):
            self._text = config.text
            self._steps = 0
            self.capabilities = config.capabilities()

        async def start(self, context):
            context.say("policy constant: nothing to load")

        def render(self, messages):
            text = "\\n".join(message.content for message in messages)
            return Prompt(tuple(messages), tuple(text.encode()))

        async def sample(self, prompt, settings):
            tokens = tuple(self._text.encode())[: settings.max_tokens]
            return Reply(bytes(tokens).decode(), tokens, (0.0,) * len(tokens), "stop")

        async def update(self, update):
            self._steps += 1
            samples = [sample for substep in update.substeps for sample in substep]
            return {"loss": -sum(sum(sample.advantages) for sample in samples)}

        async def save(self, directory):
            return {"steps": self._steps}

        async def load(self, state, directory):
            self._steps = state["steps"]
'''

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.replies import Message, Prompt, Reply
from kernelrl_core.types.tasks import WarmStartExample
from kernelrl_core.types.training import Loss, LossSample, SamplingSettings, TrainingSample, Update

__all__ = ["Policy", "PolicyCapabilities", "PolicyConfig", "PolicyContext", "TrainablePolicy"]


@attrs.frozen
class PolicyCapabilities:
    """What a policy can do; the core refuses a recipe that wants more."""

    losses: frozenset[str] = frozenset()
    """Names of the losses that `update` knows; empty: the policy cannot be trained."""
    ratios: frozenset[str] = frozenset({"token"})
    """Values of `Loss.ratio` that its losses know."""
    warm_start: bool = False
    """`PolicyContext.demonstrations` are used."""
    deterministic: bool = False
    """A reply is a function of weights, prompt tokens and its own seed, so a resumed run can be exact."""
    streams: bool = False
    """`backward` is implemented."""
    logprobs: bool = False
    """`logprobs` is implemented for the current weights: needed by `train.mismatch`."""
    reference: bool = False
    """`logprobs` is implemented for the reference policy: needed by `train.kl`."""
    exports: bool = False
    """`export` is implemented."""


@attrs.frozen
class PolicyContext:
    """What a policy is given before its first use."""

    seed: int
    """Derived from the recipe's seed; for the initial weights and nothing else that must differ between samples."""
    cache_dir: Path
    """For what may be kept between runs. Written atomically, shared by concurrent runs."""
    run_dir: Path | None
    """Directory of the run, None outside one."""
    demonstrations: Callable[[], Awaitable[Sequence[WarmStartExample]]]
    """Demonstrations of the training split, composed like the prompts of training. Awaited by policies that warm-start,
    on a cache miss."""
    demonstrations_key: str
    """Hash of everything the demonstrations depend on, known without composing them: part of the key of a cached warm
    start."""
    say: Callable[[str], None]
    """Shows a line of progress to the user."""
    loss: str = ""
    """Loss of the training that follows; empty: nothing will be trained."""
    reference: bool = False
    """`logprobs` of the reference policy will be asked for, by a KL penalty."""


@attrs.frozen
class PolicyConfig(ComponentConfig):
    """Options of a policy."""

    def capabilities(self) -> PolicyCapabilities:
        """An upper bound that needs no model, for `kernelrl validate`. After `start` the policy's own may be smaller,
        never larger; they are checked again."""
        return PolicyCapabilities()

    def prices(self) -> Mapping[str, float]:
        """What the policy charges, in USD per million tokens, under the names of the recipe block `cost.prices`:
        `prompt`, `reply`, `train`."""
        return {}


class Policy(ABC):
    """The model: samples replies.

    The constructor is cheap. `start` does the heavy imports and the loading; no method may block the event loop.
    """

    capabilities: PolicyCapabilities
    """Final after `start`."""
    context_tokens: int
    """Longest prompt and reply together, known after `start`."""

    @abstractmethod
    async def start(self, context: PolicyContext) -> None:
        """Load the model. Called once, before everything else.

        Raises:
            UsageError, MissingPrerequisite: the model cannot be had.
        """

    @abstractmethod
    def render(self, messages: Sequence[Message]) -> Prompt:
        """Apply the chat template, and state in `Prompt.opening` whether it has opened the thinking. Fast enough for
        the event loop."""

    @abstractmethod
    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        """Sample one reply. Concurrent calls are batched by the policy."""

    async def aclose(self) -> None:
        """End every process and connection. Safe to call twice."""


class TrainablePolicy(Policy):
    """A policy that learns and saves itself."""

    @abstractmethod
    async def update(self, update: Update) -> Mapping[str, float]:
        """Make all optimizer steps of a step or none. Afterwards `sample` uses the new weights.

        Returns:
            Metrics such as `loss` and `grad_norm`.
        """

    @abstractmethod
    async def save(self, directory: Path) -> Mapping[str, Any]:
        """Save weights and optimizer. `directory` exists, is empty and belongs to this checkpoint.

        Returns:
            Plain data from which `load` finds the state again, also in another process.
        """

    @abstractmethod
    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        """Continue from what `save` returned; `directory` is where that checkpoint lies now."""

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        """[sample][token] log-probabilities of the sampled tokens, by weights that no update changes meanwhile.

        Args:
            weights: `current`, those that the next `update` starts from (capability `logprobs`), or those before the
                first step (capability `reference`).
        """
        raise UsageError(f"policy {type(self).__name__} gives no log-probabilities of its {weights} weights")

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        """Forward and backward of the next samples of a step; no optimizer step, and no change to what is sampled.

        The samples follow those of earlier calls and belong to the first substep. `update` then gets all samples of the
        step, these first, and must end as if there had been no such call. Calls are divided by groups, never by time,
        so every run of a recipe makes the same ones: rounding that depends on the division repeats itself, too.
        """
        raise UsageError(f"policy {type(self).__name__} computes no gradients ahead of an update")

    async def export(self, directory: Path) -> None:
        """Write into an existing directory what an inference server loads.

        Raises:
            UsageError: this policy exports nothing, as it is configured.
        """
        raise UsageError(f"policy {type(self).__name__} exports no weights")
