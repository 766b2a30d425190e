"""Several training runs on one loaded model.

The model has the weights of one run or sampler at a time; the weights of the others are stored as copies, together with
accumulated gradients, so runs can alternate between any two requests. Used by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.policies import OptimizerSettings
from kernelrl_plugin_torch.language_model import LanguageModel, PromptAndReply
from kernelrl_plugin_torch.learner import Datum, Learner, Totals
from kernelrl_plugin_torch.sampler import Request, Sampler, rows_agree
from kernelrl_tinker_server.trained_parts import ALL_PARTS, TrainedParts

__all__ = ["Engine", "Weights"]

Weights = Mapping[str, Tensor]


@attrs.define(eq=False)
class _Run:
    """A training run."""

    learner: Learner
    weights: Weights
    """The run's weights while the model has others."""
    gradients: Sequence[Tensor | None] | None = None
    """The run's accumulated gradients while the model has other weights."""


class Engine:
    """A loaded model, its training runs, and a sampler."""

    def __init__(self, model: LanguageModel, *, rows: int, train_tokens: int) -> None:
        """
        Args:
            model: the model at its initial weights, from which every new run starts.
            rows: batch size of sampling.
            train_tokens: maximum tokens of one forward and backward pass.
        """
        self.model = model
        self._train_tokens = train_tokens
        self.base: Weights = _copy(model.state())
        self.trainable = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]
        """Names of the parameters that a run trains, unless it freezes them."""
        self._runs: dict[str, _Run] = {}
        self._owner: _Run | Weights = self.base
        """The run or the sampler weights that the model has loaded."""
        alike = rows == 1 or rows_agree(model, rows)
        self.sampler = Sampler(model, rows if alike or model.device.type != "cpu" else 1)

    # --- training -------------------------------------------------------------------------------------------------

    def create(
        self,
        run: str,
        weights: Weights | None = None,
        optimizer: Mapping[str, Any] | None = None,
        *,
        parts: TrainedParts = ALL_PARTS,
        seed: int | None = None,
    ) -> None:
        """Start a training run at the initial weights, or at those of a checkpoint.

        Args:
            parts: the parts of the model that are trained.
            seed: seed of the initial adapters; None: those that the model was loaded with. No effect without adapters,
                or with `weights`.

        Raises:
            UsageError: the weights are of another model, or a part cannot be frozen.
        """
        if weights is None:
            weights = self.base if seed is None else _with_new_adapters(self.base, seed)
        else:
            weights = self.checked(weights)
        made = _Run(Learner(self.model, self._train_tokens, parts.frozen(self.trainable)), weights)
        if optimizer is not None:
            made.learner.load_state(optimizer)
        self._runs[run] = made

    def checked(self, weights: Weights) -> Weights:
        """The weights of a checkpoint, if they are of the served model.

        Raises:
            UsageError: they are of another one.
        """
        if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in self.base.items()}:
            raise UsageError("the checkpoint is of another model than the served one")
        return weights

    def forget(self, run: str) -> None:
        """End a run and free its memory."""
        gone = self._runs.pop(run, None)
        if gone is not None and self._owner is gone:
            gone.learner.take_gradients()
            self._owner = {}

    def backward(
        self, run: str, data: Sequence[Datum], loss: str, bounds: tuple[float, float], ratio: str
    ) -> tuple[list[list[float]], Totals]:
        """Accumulate gradients; returns the [datum][token] log-probabilities under the current weights."""
        learner, totals = self._take(run), Totals()
        rows = learner.backward(data, loss, bounds, totals, ratio)
        return [row.tolist() for row in rows], totals

    def forward(self, run: str, pairs: Sequence[PromptAndReply]) -> list[list[float]]:
        return self._take(run).logprobs(pairs)

    def update(self, run: str, settings: OptimizerSettings) -> float:
        """One optimizer step with the accumulated gradients; returns their norm before clipping."""
        return self._take(run).update(settings)

    def weights(self, run: str) -> Weights:
        """A copy of a run's current weights."""
        self._take(run)
        return _copy(self.model.state())

    def optimizer(self, run: str) -> dict[str, Any]:
        return self._take(run).state()

    def _take(self, name: str) -> Learner:
        """Load the weights and gradients of a run into the model, unless they are loaded."""
        run = self._runs.get(name)
        if run is None:
            raise InfrastructureError(
                f"training run {name!r} is not loaded (was the server restarted?)",
                fix="create a training client from its last checkpoint",
                see="tinker-server",
            )
        if self._owner is not run:
            self._give(run.weights)
            self._owner = run
            run.weights = {}
            if run.gradients is not None:
                run.learner.put_gradients(run.gradients)
                run.gradients = None
        return run.learner

    def _give(self, weights: Weights) -> None:
        """Load weights into the model, after storing those of the current owner."""
        if isinstance(self._owner, _Run):
            self._owner.weights = _copy(self.model.state())
            self._owner.gradients = self._owner.learner.take_gradients()
        self.model.load_state(weights)
        self.sampler.weights_changed()

    # --- sampling -------------------------------------------------------------------------------------------------

    def sample(self, weights: Weights, requests: Sequence[Request]) -> None:
        """Sample the replies of the requests, and of those that are submitted to `sampler` while it runs."""
        if self._owner is not weights:
            self._give(weights)
            self._owner = weights
        for request in requests:
            self.sampler.submit(request)
        self.sampler.run()

    @torch.no_grad()
    def prompt_logprobs(self, weights: Weights, prompt: Sequence[int], n: int) -> list[float]:
        """[n] log-probabilities of the last n tokens of a prompt; n is less than its length."""
        if n == 0:
            return []
        if self._owner is not weights:
            self._give(weights)
            self._owner = weights
        self.model.module.eval()
        logprobs: list[float] = self.model.score(
            [PromptAndReply(tuple(prompt[:-n]), tuple(prompt[-n:]))]
        ).logprobs.tolist()
        return logprobs


def _with_new_adapters(base: Weights, seed: int) -> Weights:
    """The initial weights with other random adapters, from the distribution that peft uses."""
    generator = torch.Generator().manual_seed(seed)
    made = _copy(base)
    for name in sorted(made):
        if ".lora_A." in name:
            drawn = torch.empty(made[name].shape, dtype=torch.float32)
            made[name].copy_(torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator))
    return made


def _copy(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
