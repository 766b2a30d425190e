"""Training through an SDK training client, which is replaced when it fails.

Every step ends with new sampler weights at the server. After one failed or hung request a training client is unusable
(the SDK refuses further requests). The step is then repeated with a new client from the last checkpoint. If steps were
made since that checkpoint, the run stops instead, and is resumed from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from tinker import types

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.api.policies import Loss, LossSample, TrainingSample, Update
from kernelrl_plugin_tinker import sdk
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.passes import PassesAhead, adam, datum, loss_options, scored_datum, trainer_logprobs
from kernelrl_plugin_tinker.saved import SavedPaths, SavedState, seconds_to_live, with_kind
from kernelrl_plugin_tinker.service import Service

__all__ = ["Trainer"]

_log = logging.getLogger(__name__)

_PROBE = TrainingSample("probe", (1,), (1,), (-1.0,), 0.0)
_LOSS_PROBE = LossSample("probe", (1,), (1,), (-1.0,), (0.0,))


class Trainer:
    """The weights of a run at the server: training, sampling clients, saving."""

    def __init__(self, service: Service, options: TinkerConfig, model: str, seed: int) -> None:
        """
        Args:
            model: name of the base model at the server.
            seed: seed of the adapters' initial weights.
        """
        self._service, self._options, self._model, self._seed = service, options, model, seed
        self._ttl = None if options.server == "local" else seconds_to_live(options.checkpoint_days)
        self._start = options.start_from
        """Path of the weights before the first step; None: the initial weights."""
        self._client: Any = None
        self._reference: Any = None
        self._ahead: PassesAhead | None = None
        """Passes of the current step that were sent before `update`."""
        self._lock = asyncio.Lock()
        self._unsaved = 0
        """Steps since the last checkpoint."""
        self._failure = ""
        """The failure of the last discarded client."""
        self._loads_into_model = False
        """True for a server that loads weights only into a model that it has created before."""
        self.sampler: Any = None
        """Sampling client for the weights after the last step."""
        self.saved = SavedState()
        """The paths from which the clients can be created again."""
        self.at_server = SavedPaths()
        self.steps = 0

    # --- beginning ------------------------------------------------------------------------------------------------

    async def begin(self, loss: str, *, reference: bool) -> None:
        """Start at the initial weights, and check that the server supports the loss and the reference policy.

        Raises:
            UsageError: the server does not support the loss, or log-probabilities of prompts for the reference policy.
        """
        if self._start is None:
            self.sampler = await self._service.sampling_client(base_model=self._model)
        if loss or self._start is not None:
            await self._service.retrying(lambda: self._begin_client(loss))
        if reference:
            await self._probe_reference()

    async def _begin_client(self, loss: str = "") -> None:
        """Create a training client at the initial weights; with a loss, check that the server supports it."""
        if self._start is not None:
            await self._check_start(self._start)
            self._client = await self._client_from(self._start, optimizer=False)
        else:
            self._client = await self._new_client()
        if self._start is not None and self.sampler is None:
            path = await self._save_for_sampler("start")
            self.saved = SavedState(sampler=path, first_sampler=path)
            self.sampler = await self._service.sampling_client(model_path=path)
        if loss:
            await self._probe(loss)

    async def _check_start(self, path: str) -> None:
        """Refuse saved weights of another base model, whose tokenizer may differ."""
        doing = "policy.start_from" if path == self._options.start_from else "the weights of the other run"
        info = await self._service.request(doing, lambda: self._service.rest.get_weights_info_by_tinker_path(path))
        if info.base_model != self._model:
            raise UsageError(
                f"{path} is of the model {info.base_model!r}, but policy.model is {self._model!r}",
                fix=f"set policy.model={info.base_model}, or another path",
                see="checkpoint-model",
            )

    async def begin_from(self, path: str) -> None:
        """Begin with the weights at a `tinker://` path, in place of the initial ones.

        Raises:
            UsageError: they do not exist, or are of another base model.
        """
        self._start, self.saved = path, SavedState()
        self._client = self._reference = self.sampler = None
        await self._service.retrying(self._begin_client)

    async def _probe(self, loss: str) -> None:
        """Try the loss on one token with advantage 0: its gradient is 0, so the training client is unchanged."""
        try:
            await self._call(f"the loss {loss}", self._client.forward_backward([datum(_LOSS_PROBE)], loss))
        except UsageError as error:
            raise UsageError(f"train.loss: {self._service.name} does not offer {loss!r}: {error.message}") from error

    async def _probe_reference(self) -> None:
        try:
            await self.reference_logprobs([_PROBE])
        except UsageError as error:
            raise UsageError(
                f"train.kl: {self._service.name} does not return log-probabilities of prompts: {error.message}",
                fix="set train.kl=0",
                see="policy-options",
            ) from error

    # --- learning -------------------------------------------------------------------------------------------------

    async def update(self, update: Update) -> dict[str, float]:
        """One step; see `TrainablePolicy`."""
        async with self._lock:
            ahead = self._passes_ahead_of(update)
            metrics, path = await self._service.retrying(lambda: self._whole_step(update, ahead))
            try:
                self.sampler = await self._service.sampling_client(model_path=path)
            except BaseException as error:
                self._give_up_client(error)  # its weights are one step ahead of `self.saved`
                raise
            self._ahead = None
            self.saved = self.saved.trained(path)
            self.steps += 1
            self._unsaved += 1
            self.at_server.add_sampler(path)
        return metrics

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        """Send a pass over samples of the first substep. If it fails, `update` repeats it."""
        async with self._lock:
            self._ahead = ahead = self._ahead or PassesAhead(loss)
            ahead.sizes.append(len(samples))
            if ahead.done < len(ahead.sizes) - 1:
                return  # after a failure `update` sends all passes
            try:
                await self._require_client()
                ahead.metrics.add_part(samples, await self._call("a training pass", self._pass(samples, loss)))
                ahead.done += 1
            except InfrastructureError as error:
                _log.warning("a training pass failed and will be repeated by the update: %s", error.message)
                self._give_up_client(error)
            except BaseException as error:
                self._give_up_client(error)
                raise

    def _passes_ahead_of(self, update: Update) -> PassesAhead:
        """Passes of this step before `update`. A client with gradients of another step is discarded."""
        ahead = self._ahead
        if ahead is None or tuple(ahead.sizes) != update.accumulated:
            if ahead is not None and ahead.done:
                self._give_up_client(KernelRLError("the training client has gradients of an abandoned step"))
            self._ahead = ahead = PassesAhead(update.loss, update.accumulated)
        return ahead

    async def _whole_step(self, update: Update, ahead: PassesAhead) -> tuple[dict[str, float], str]:
        """Metrics of one step from the weights before it, and the path of its sampler weights."""
        try:
            await self._require_client()
            metrics = await self._passes(update, ahead)
            return metrics, await self._save_for_sampler(f"step-{self.steps + 1:06d}")
        except BaseException as error:
            self._give_up_client(error)
            raise

    async def _passes(self, update: Update, ahead: PassesAhead) -> dict[str, float]:
        for number, substep in enumerate(update.substeps):
            pieces = ahead.left(substep) if number == 0 else [substep]
            # All requests are sent before the first is awaited, so that the server is never idle between them.
            passes = [(piece, self._pass(piece, update.loss)) for piece in pieces]
            step = self._client.optim_step(adam(update.optimizer))
            for piece, future in passes:
                ahead.metrics.add_part(piece, await self._call("a training pass", future))
            ahead.metrics.add_norm((await self._call("an optimizer step", step)).metrics)
        return ahead.metrics.metrics()

    def _pass(self, samples: Sequence[LossSample], loss: Loss) -> Any:
        return self._client.forward_backward([datum(sample) for sample in samples], loss.name, loss_options(loss))

    async def current_logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """[sample][token] log-probabilities under the current weights."""

        async def score() -> list[list[float]]:
            try:
                await self._require_client()
                data = [scored_datum(sample) for sample in samples]
                output = await self._call("a forward pass", self._client.forward(data, "cross_entropy"))
            except BaseException as error:
                self._give_up_client(error)
                raise
            return [row.tolist() for row in trainer_logprobs(samples, output)]

        async with self._lock:
            return await self._service.retrying(score)

    async def reference_logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """[sample][token] log-probabilities under the reference policy."""
        if self._reference is None:
            which = {"base_model": self._model}
            if self.saved.first_sampler is not None:
                which = {"model_path": self.saved.first_sampler}
            self._reference = await self._service.sampling_client(**which)
        reference = self._reference

        async def score(sample: TrainingSample) -> list[float]:
            tokens, n = [*sample.prompt_tokens, *sample.tokens], len(sample.tokens)
            future = sdk.prompt_logprobs(reference, types.ModelInput.from_ints(tokens), n)
            scores = await self._call("the reference", future, timeout_s=self._options.sample_timeout_s)
            return [float(score) for score in scores[-n:]]

        retrying = self._service.retrying
        return list(await asyncio.gather(*(retrying(lambda one=sample: score(one)) for sample in samples)))

    # --- training clients and checkpoints -------------------------------------------------------------------------

    def _give_up_client(self, error: BaseException) -> None:
        """Discard the training client and its gradients at the server."""
        self._client = None
        self._failure = error.message if isinstance(error, KernelRLError) else type(error).__name__
        if self._ahead is not None:
            self._ahead.restart()

    async def _require_client(self) -> None:
        """Create a training client from the last checkpoint, unless there is one.

        Raises:
            KernelRLError: the checkpoint is older than the current weights, so steps would be lost.
        """
        if self._client is not None:
            return
        if self._unsaved:
            raise KernelRLError(
                f"the training client failed {self._unsaved} steps after the last checkpoint, so these steps are lost: "
                f"{self._failure}",
                fix="kernelrl resume RUN; with train.checkpoint_every=1 such a failure loses no step",
                see="tinker-server",
            )
        if self.saved.state is None:
            await self._begin_client()
        else:
            _log.warning("%s; creating a new training client from %s", self._failure, self.saved.state)
            self._client = await self._client_from(self.saved.state, optimizer=True)

    async def _new_client(self) -> Any:
        """A training client at the initial weights."""

        def make() -> Any:
            return self._service.client.create_lora_training_client(
                base_model=self._model, rank=self._options.lora_rank, seed=self._seed % 2**31
            )

        return await self._service.request(f"a training client for {self._model}", make)

    async def _client_from(self, path: str, *, optimizer: bool) -> Any:
        """A training client at saved weights, with or without the saved optimizer state."""
        service = self._service
        create, load = "create_training_client_from_state", "load_state"
        if optimizer:
            create, load = f"{create}_with_optimizer", f"{load}_with_optimizer"
        if not self._loads_into_model:
            try:
                return await service.request(
                    f"a training client from {path}", lambda: getattr(service.client, create)(path)
                )
            except UsageError as error:
                if "model_id" not in error.message:
                    raise
                self._loads_into_model = True
        client = await self._new_client()
        await service.request(f"loading {path}", lambda: getattr(client, load)(path))
        return client

    async def save(self) -> SavedState:
        """Save state, optimizer and sampler weights at the server.

        Raises:
            KernelRLError: saving failed; the training client is discarded.
        """
        async with self._lock:
            try:
                path, sampler = await self._service.retrying(self._save_once)
            except InfrastructureError as error:
                raise KernelRLError(
                    f"the checkpoint could not be saved: {error.message}", fix=error.fix, see=error.see
                ) from error
            self.saved = SavedState(path, sampler, self.saved.first_sampler)
            self._unsaved = 0
            return self.saved

    async def _save_once(self) -> tuple[str, str]:
        """Save once; return the paths of the state and of the sampler weights."""
        try:
            await self._require_client()
            name = f"checkpoint-{self.steps:06d}"
            future = self._client.save_state(name, ttl_seconds=self._ttl, overwrite=True)
            path = str((await self._call("saving the state", future)).path)
            return path, self.saved.sampler or await self._save_for_sampler(name)
        except InfrastructureError as error:
            self._give_up_client(error)
            raise

    async def restore(self, saved: SavedState, steps: int, *, learning: bool) -> None:
        """Continue from saved paths; a training client is created only if `learning`."""
        self.saved, self.steps, self._unsaved, self._ahead = saved, steps, 0, None
        state = saved.state
        if state is None or saved.sampler is None:
            raise UsageError("it has no path of the state or of the sampler weights")
        if learning:
            self._client = await self._service.retrying(lambda: self._client_from(state, optimizer=True))
        self.sampler = await self._service.sampling_client(model_path=saved.sampler)

    async def _save_for_sampler(self, name: str) -> str:
        future = self._client.save_weights_for_sampler(name, ttl_seconds=self._ttl)
        return with_kind(str((await self._call("saving sampler weights", future)).path))

    async def _call(self, doing: str, awaitable: Any, *, timeout_s: float | None = None) -> Any:
        return await self._service.call(doing, awaitable, timeout_s=timeout_s)
