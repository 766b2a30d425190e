"""Several training runs on one loaded model.

The model has the weights of one run or sampler at a time; the weights of the others are stored as copies, together with
accumulated gradients, so runs can alternate between any two requests. Used by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
        with torch.inference_mode():
            (prefix,) = model.prefill([[0]])
            self.vocabulary = len(prefix.logits)
            """Number of token ids that the model knows."""
        self._runs: dict[str, _Run] = {}
        self._owner: _Run | Weights = self.base
        """The run or the sampler weights that the model has loaded."""
        alike = rows == 1 or model.device.type != "cpu" or rows_agree(model, rows)
        self.sampler = Sampler(model, rows if alike else 1)

    # --- training -------------------------------------------------------------------------------------------------

    def create(
        self,
        run: str,
        weights: Weights | None = None,
        optimizer: Mapping[str, Any] | None = None,
        *,
        parts: TrainedParts = ALL_PARTS,
        seed: int | None = None,
        rank: int | None = None,
    ) -> None:
        """Start a training run at the initial weights, or at those of a checkpoint.

        Args:
            parts: the parts of the model that are trained.
            seed: seed of the initial adapters; None: a fixed one. No effect without adapters, or with `weights`.
            rank: rank of the adapters; None: that of the loaded model. No effect likewise.

        Raises:
            UsageError: the weights are of another model, or a part cannot be frozen.
        """
        if weights is None:
            same = rank is None or rank == _rank(self.base)
            weights = self.base if same and seed is None else _with_new_adapters(self.base, seed or 0, rank)
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
        rank = _rank(weights)
        expected = {name: _shape(name, tensor, rank) for name, tensor in self.base.items()}
        if {name: tensor.shape for name, tensor in weights.items()} != expected:
            raise UsageError("the checkpoint is of another model than the served one")
        return weights

    def check_rank(self, rank: int) -> None:
        """
        Raises:
            UsageError: the model's adapters cannot have this rank. Without adapters every rank is ignored.
        """
        sides = [side for name, tensor in self.base.items() if _adapter(name) for side in tensor.shape]
        if sides and not 1 <= rank <= max(sides):
            raise UsageError(f"rank={rank}: the adapters of this model have ranks from 1 to {max(sides)}")

    def forget(self, run: str) -> None:
        """End a run and free its memory."""
        gone = self._runs.pop(run, None)
        if gone is not None and self._owner is gone:
            gone.learner.take_gradients()
            self._owner = {}

    def backward(self, run: str, data: Sequence[Datum], **loss: Any) -> tuple[list[Any], Totals]:
        """Accumulate gradients.

        Args:
            loss: `loss`, `bounds`, `ratio` and `beta` of `Learner.backward`.

        Returns:
            [datum] log-probabilities of the targets under the current weights, as nested lists, and the metrics.
        """
        learner, totals = self._take(run), Totals()
        rows = learner.backward(data, totals=totals, **loss)
        return [row.tolist() for row in rows], totals

    @torch.no_grad()
    def forward(self, run: str, data: Sequence[Datum], **loss: Any) -> tuple[list[Any], Totals]:
        """Like `backward`, without gradients."""
        return self.backward(run, data, **loss)

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
        for name, parameter in self.model.module.named_parameters():
            # A run with adapters of another rank: the scale of adapters does not depend on their rank.
            if name in weights and parameter.shape != weights[name].shape:
                parameter.data = parameter.data.new_empty(weights[name].shape)
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
    def prompt_distribution(self, weights: Weights, prompt: Sequence[int], n: int) -> Tensor:
        """[n, vocabulary] log-probabilities of all tokens in the places of the last n of a prompt; n is less than its
        length."""
        if n == 0:
            return torch.zeros(0, self.vocabulary)
        if self._owner is not weights:
            self._give(weights)
            self._owner = weights
        self.model.module.eval()
        return self.model.score([PromptAndReply(tuple(prompt[:-n]), tuple(prompt[-n:]))]).distribution

    def check_tokens(self, tokens: Iterable[int]) -> None:
        """
        Raises:
            UsageError: a token is not in the vocabulary.
        """
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise UsageError(
                    f"token {token} is not in the model's vocabulary of {self.vocabulary}",
                    fix="use the tokenizer that the server names (TrainingClient.get_tokenizer)",
                )


def _adapter(name: str) -> str:
    """`A` or `B`, the factor of an adapter's product B A that a parameter is; empty: none."""
    return next((factor for factor in "AB" if f".lora_{factor}." in name), "")


def _shape(name: str, tensor: Tensor, rank: int | None) -> torch.Size:
    """The shape of a weight in a run with adapters of a rank; None: its own."""
    part = _adapter(name)
    if not part or rank is None:
        return tensor.shape
    return torch.Size((rank, tensor.shape[1]) if part == "A" else (tensor.shape[0], rank))


def _rank(weights: Weights) -> int | None:
    """Rank of the adapters; None: there are none."""
    return next((tensor.shape[0] for name, tensor in weights.items() if _adapter(name) == "A"), None)


def _with_new_adapters(base: Weights, seed: int, rank: int | None) -> Weights:
    """The initial weights with other random adapters of a rank, from the distribution that peft uses."""
    generator = torch.Generator().manual_seed(seed)
    made = _copy(base)
    for name in sorted(made):
        shape, part = _shape(name, made[name], rank), _adapter(name)
        if part == "A":
            drawn = torch.empty(shape, dtype=torch.float32)
            made[name] = torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator).to(made[name])
        elif part == "B":
            made[name] = made[name].new_zeros(shape)
    return made


def _copy(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
