"""Policies: sample replies and, if trainable, learn from them.

The core composes prompts and computes advantages. A policy renders prompts to tokens, samples, learns and saves its
state. `start` does the heavy imports; no method may block the event loop. A policy that computes on a GPU holds a
shared `DeviceLease` while it works (docs/plugin_rules.md, "Sharing a GPU with timing").

A `TrainablePolicy` has `update`, `save` and `load`, and further methods by its capabilities:

| method | capability | needed by |
|---|---|---|
| `logprobs(samples, "current")` | `logprobs` | `train.mismatch`, `train.importance_cap` |
| `logprobs(samples, "reference")` | `reference` | `train.kl` |
| `backward(samples, loss)` | `streams` | computing gradients while others are still sampled (docs/pipelining.md) |
| `export(directory)` | `exports` | `kernelrl export --as weights`; use as `learner` of policy `openai` |
| `begin_from(state, directory)` | none | `kernelrl run --from` |

`update` gets an `Update`: all samples of the step, divided into `substeps`, one optimizer step each. The loss of an
optimizer step is the sum over the tokens of its samples, each token with its own advantage. The advantages already
include KL penalty and loss denominator, and the samples that `train.mismatch` filters are removed. An update makes all
optimizer steps of a step or none. `Update.accumulated` lists how many samples each earlier `backward` call had.
These samples come first in the first substep.

`capabilities()` of the options is an upper bound that needs no model: `kernelrl validate` refuses a `train.loss`,
`train.ratio`, `train.kl` or `train.mismatch` outside of it. After `start` the policy's own `capabilities` may be
smaller; the core checks them again.

`kernelrl plugins new policies NAME` writes a sample plugin.
"""

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
    """Capabilities of a policy. The core refuses a recipe that needs more."""

    losses: frozenset[str] = frozenset()
    """Losses that `update` implements; empty: the policy cannot be trained."""
    ratios: frozenset[str] = frozenset({"token"})
    """Values of `Loss.ratio` that `update` implements."""
    warm_start: bool = False
    """True if the policy trains on `PolicyContext.demonstrations`."""
    deterministic: bool = False
    """True if a reply depends only on weights, prompt tokens and its own seed, so that a resumed run can be exact."""
    streams: bool = False
    """True if `backward` is implemented."""
    logprobs: bool = False
    """True if `logprobs` is implemented for the current weights. `train.mismatch` and `train.importance_cap` need it.
    """
    reference: bool = False
    """True if `logprobs` is implemented for the reference policy. `train.kl` needs it."""
    tempered: bool = False
    """True if log-probabilities can be those at the sampling temperature, in replies (`logprobs_temperature` of the
    settings), in `logprobs` and in the loss (`temperature` of a sample). `train.logprobs_at: sampling` needs it."""
    exports: bool = False
    """True if `export` is implemented."""


@attrs.frozen
class PolicyContext:
    """Arguments of `Policy.start`."""

    seed: int
    """Seed of the initial weights, derived from the recipe's seed. Replies have their own seeds."""
    cache_dir: Path
    """Directory for files that are kept between runs. Concurrent runs share it, so write atomically."""
    run_dir: Path | None
    """Directory of the run; None outside of a run."""
    demonstrations: Callable[[], Awaitable[Sequence[WarmStartExample]]]
    """Composes the demonstrations of the training split like the prompts of training. Await it only on a miss of the
    warm-start cache."""
    demonstrations_key: str
    """Hash of everything that the demonstrations depend on, available without evaluating any. Use it in the key of a
    cached warm start. Empty if the policy lacks the capability `warm_start`."""
    say: Callable[[str], None]
    """Prints a line of progress for the user."""
    loss: str = ""
    """Loss of the training that follows; empty: no training follows."""
    reference: bool = False
    """True if a KL penalty will need `logprobs` of the reference policy."""
    weights_follow: bool = False
    """True if `load` or `begin_from` is the next call, so that initial weights and a warm start would be in vain."""
    reply_tokens: int = 1
    """Least number of tokens that every prompt must leave for the reply. Check it before a warm start, because the core
    renders prompts only after `start`."""


@attrs.frozen
class PolicyConfig(ComponentConfig):
    """Options of a policy."""

    def capabilities(self) -> PolicyCapabilities:
        """Upper bound of the policy's capabilities, computed without a model, for `kernelrl validate`. After `start`
        the policy's own `capabilities` may be smaller, never larger; the core checks them again."""
        return PolicyCapabilities()

    def context_limit(self) -> int | None:
        """`Policy.context_tokens`, if it is known without the model, for `kernelrl validate`; None: not known."""
        return None

    def prices(self) -> Mapping[str, float]:
        """Prices in USD per million tokens, by key of the recipe block `cost.prices`: `prompt`, `reply`, `train`."""
        return {}

    def identity(self) -> Mapping[str, Any]:
        """Identity of the model before training as plain data, such as the hash of its file, computed without loading
        it. Empty: none.

        The core stores it in `provenance.json`, and `kernelrl resume` refuses another identity.

        Raises:
            MissingPrerequisite: the model is not installed.
        """
        return {}


class Policy(ABC):
    """The model and its sampler.

    The constructor is cheap. `start` imports heavy modules and loads the model. No method may block the event loop.
    """

    capabilities: PolicyCapabilities
    """Final after `start`."""
    context_tokens: int
    """Maximum length of prompt plus reply, in tokens. Known after `start`."""

    @abstractmethod
    async def start(self, context: PolicyContext) -> None:
        """Load the model. Called once, before everything else.

        Raises:
            UsageError, MissingPrerequisite: the model cannot be loaded.
        """

    @abstractmethod
    def render(self, messages: Sequence[Message]) -> Prompt:
        """Apply the chat template. If it ends with an open think tag, `Prompt.opening` is that tag. Takes milliseconds:
        it is called in the event loop."""

    @abstractmethod
    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        """Sample one reply. The core makes concurrent calls; batching them is the policy's task.

        Raises:
            InfrastructureError: the reply could not be sampled; the turn is masked.
        """

    async def aclose(self) -> None:
        """End all processes and connections. May be called twice."""


class TrainablePolicy(Policy):
    """A policy that learns and saves its state."""

    @abstractmethod
    async def update(self, update: Update) -> Mapping[str, float]:
        """Make all optimizer steps of a step or none. Afterwards `sample` uses the new weights.

        Returns:
            Metrics such as `loss` and `grad_norm`.
        """

    @abstractmethod
    async def save(self, directory: Path) -> Mapping[str, Any]:
        """Save weights and optimizer state. `directory` exists, is empty and belongs to this checkpoint.

        Returns:
            Plain data that `load` needs to restore the state, also in another process.
        """

    @abstractmethod
    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        """Restore the state from the return value of `save`. `directory` is the present path of that checkpoint."""

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        """Begin a new run with the weights of another run's checkpoint, in place of the initial ones. Called once,
        directly after `start`. The optimizer state is new, and these weights are the reference policy.

        Args:
            state, directory: as for `load`. The directory belongs to the new run.

        Raises:
            UsageError: the weights are of another model, or the policy does not implement this.
        """
        raise UsageError(f"policy {type(self).__name__} cannot begin with the weights of another run")

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        """[sample][token] natural-log probabilities of the sampled tokens. The core starts no update during the call.

        Args:
            weights: `current`: the weights from which the next `update` starts (capability `logprobs`); `reference`:
                the weights before the first step (capability `reference`).

        Raises:
            UsageError: the policy lacks the capability.
        """
        raise UsageError(f"policy {type(self).__name__} gives no log-probabilities of its {weights} weights")

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        """Accumulate the gradients of the next samples of a step, without an optimizer step. Sampling continues with
        unchanged weights.

        The samples follow those of earlier calls and belong to the first substep. `update` then gets all samples of the
        step, these first, and must end in the same state as without these calls. Calls are divided by groups, never by
        time, so every run of a recipe makes the same calls and rounds in the same way.

        Raises:
            UsageError: the policy lacks the capability `streams`.
        """
        raise UsageError(f"policy {type(self).__name__} computes no gradients ahead of an update")

    async def export(self, directory: Path) -> None:
        """Write the model into an existing directory in a format that inference servers load.

        Raises:
            UsageError: the policy cannot export with its present options.
        """
        raise UsageError(f"policy {type(self).__name__} exports no weights")
