"""The policy `tinker`: a model that is sampled and trained through Tinker's SDK.

Every step ends with new sampler weights at the server. A training client that fails in any request is useless for good
(the SDK refuses further ones), so the step is repeated with one made from the last checkpoint; where steps would be
lost by that, the run stops and is resumed from the checkpoint instead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random
from tinker import types

from kernelrl_core.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.kinds import PolicyCapabilities, PolicyContext, SamplingSettings, TrainingSample, TrainingStep
from kernelrl_core.shaping import ShapedStep, parts, shape_step
from kernelrl_core.values import Message, Prompt, Reply
from kernelrl_plugin_tinker.chat import CHAT_TEMPLATE, Chat, load_tokenizer, make_chat, recommended_renderer
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.lessons import Ahead, adam, datum, loss_options, present_logprobs, scored_datum
from kernelrl_plugin_tinker.saved import STATE_FILE, SavedPaths, SavedState, seconds_to_live
from kernelrl_plugin_tinker.service import RETRIES, Service, choose_model

__all__ = ["LOSSES", "TinkerPolicy"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

LOSSES = frozenset({"importance_sampling", "ppo", "cispo"})
_LOCAL_STATE = "tinker-server-"
_NOT_SECRET = "tml-for-a-server-on-this-machine"


class TinkerPolicy:
    """See `kernelrl_core.kinds.Policy`."""

    def __init__(self, options: TinkerConfig) -> None:
        self._options = options
        self._is_local = options.server == "local"
        self.capabilities = PolicyCapabilities(
            losses=LOSSES,
            warm_start=self._is_local and options.model is None,
            deterministic=self._is_local,
            streams=True,
        )
        self.context_tokens = options.context_tokens or options.local.context_tokens
        self._context: PolicyContext | None = None
        self._service: Service | None = None
        self._chat: Chat | None = None
        self._model = options.model or ""
        self._model_key = self._model
        """Names the model in checkpoints; the same on every machine."""
        self._server: Any = None
        """`kernelrl_tinker_server.local.LocalServer` of this policy."""
        self._own_state: Path | None = None
        """Directory of the server that ends with this policy."""
        self._training: Any = None
        self._sampler: Any = None
        self._reference: Any = None
        self._ahead: Ahead | None = None
        """Passes of the step under way that came before `train`."""
        self._state = SavedState()
        """What the training client can be made from again."""
        self._steps = self._unsaved = self._retried = 0
        self._saved = SavedPaths()
        self._lock = asyncio.Lock()

    # --- beginning and end ----------------------------------------------------------------------------------------

    async def start(self, context: PolicyContext) -> None:
        self._context, options = context, self._options
        if self._is_local:
            await self._start_server(context)
        self._service = Service(
            base_url=self._server.base_url if self._server is not None else options.base_url,
            api_key=self._api_key(),
            give_up_after_s=options.give_up_after_s,
            revive=self._revive if self._server is not None else None,
        )
        served = await self._service.connect()
        entry = choose_model(self._model, served, training=bool(context.loss), server=self._service.name)
        limit = entry.max_context_length
        if limit is None and options.context_tokens is None:
            raise UsageError(
                f"{self._service.name} does not say how long the context of {self._model!r} is",
                fix="set policy.context_tokens",
            )
        if limit is not None and (options.context_tokens or 0) > limit:
            raise UsageError(
                f"policy.context_tokens is {options.context_tokens}; {self._service.name} allows {limit}",
                fix=f"set policy.context_tokens={limit}",
            )
        self.context_tokens = options.context_tokens or limit
        tokenizer = await asyncio.to_thread(load_tokenizer, self._model)
        renderer = options.renderer or recommended_renderer(self._model)
        if options.renderer is None and renderer == CHAT_TEMPLATE and not self._is_local:
            context.say(f"tinker-cookbook knows no renderer for {self._model}: the tokenizer's chat template is used")
        self._chat = make_chat(self._model, renderer, tokenizer)
        if options.start_from is None:
            self._sampler = await self._sampling_client(base_model=self._model)
        if context.loss:
            await self._probe(context)
        elif options.start_from is not None:
            await self._begin()

    def _api_key(self) -> str | None:
        """The key to use; None lets the SDK look for it."""
        if self._server is not None:
            return str(self._server.api_key)
        if os.environ.get("TINKER_API_KEY") or not self._options.on_this_machine():
            return None
        return _NOT_SECRET

    async def _start_server(self, context: PolicyContext) -> None:
        from kernelrl_tinker_server.local import LocalServer

        options = self._options
        if options.model is None:
            from kernelrl_tinker_server.models import warm_started_model

            local = options.local
            directory = await warm_started_model(
                context,
                width=local.width,
                layers=local.layers,
                heads=local.heads,
                context_tokens=local.context_tokens,
                vocabulary=local.vocabulary,
                warm_start_steps=local.warm_start_steps,
            )
            self._model, self._model_key = str(directory), f"from scratch {directory.name}"
        arguments: tuple[str, ...] = ()
        if options.model is not None:
            arguments = ("--lora-rank", str(options.lora_rank))
            if options.context_tokens is not None:
                arguments += ("--context-tokens", str(options.context_tokens))
        self._own_state = await asyncio.to_thread(_fresh_directory, context.run_dir)
        self._server = LocalServer(state=self._own_state, model=self._model, arguments=arguments)
        await asyncio.to_thread(self._server.start)

    async def _revive(self) -> None:
        if not self._server.alive:
            _log.warning("the local server has ended; it is started again")
            await asyncio.to_thread(self._server.start)

    async def _probe(self, context: PolicyContext) -> None:
        """Refuse, before anything is spent, what the server cannot do.

        A position that counts nothing has no gradient, so the training client is as it was.
        """
        await self._begin()
        sample = TrainingSample("probe", (1,), (1,), (-1.0,), 0.0)
        name = _present(self._service).name
        try:
            await self._call(
                f"the loss {context.loss}", self._training.forward_backward([datum(sample, [0.0])], context.loss)
            )
        except UsageError as error:
            raise UsageError(f"train.loss: {name} does not offer {context.loss!r}: {error.message}") from error
        if context.reference:
            try:
                await self._reference_logprobs([sample])
            except UsageError as error:
                raise UsageError(
                    f"train.kl: {name} gives no log-probabilities of prompts: {error.message}",
                    fix="set train.kl=0",
                ) from error

    async def aclose(self) -> None:
        if self._service is not None:
            await self._service.aclose()
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
        if self._own_state is not None:
            await asyncio.to_thread(shutil.rmtree, self._own_state, ignore_errors=True)

    # --- sampling -------------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(_present(self._chat).render(messages)))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        chat, sampler = _present(self._chat), _present(self._sampler)
        room = self.context_tokens - len(prompt.tokens)
        if room < 1:
            raise UsageError(
                f"the prompt has {len(prompt.tokens)} tokens and leaves no room for a reply: "
                f"the context holds {self.context_tokens}",
                fix="shorten the prompt (prompt.max_tokens, history.keep) or choose a model with a longer context",
            )
        asked = types.SamplingParams(
            max_tokens=min(settings.max_tokens, room),
            seed=self._seed(settings.seed),
            stop=chat.stops(settings.stop),
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
        )

        async def draw() -> types.SampledSequence:
            future = sampler.sample(types.ModelInput.from_ints(list(prompt.tokens)), 1, asked)
            response = await self._call("a reply", future, timeout_s=self._options.sample_timeout_s)
            sequence = response.sequences[0] if response.sequences else None
            if sequence is None or not sequence.tokens or len(sequence.tokens) != len(sequence.logprobs or ()):
                raise InfrastructureError("the server sent half a reply")
            return sequence

        drawn = await self._retrying(draw)
        reason = "length" if drawn.stop_reason == "length" else "stop"
        return chat.read(prompt.messages, list(drawn.tokens), list(drawn.logprobs or ()), reason, settings.stop)

    def _seed(self, seed: int) -> int:
        # What range the hosted service takes is not known; every server takes 31 bits.
        return seed if self._is_local or self._options.on_this_machine() else seed % 2**31

    async def _retrying(self, work: Any) -> Any:
        """Do something again when the infrastructure fails, after growing and jittered pauses."""
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=stop_after_attempt(self._options.retries + 1),
            wait=wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 1.0),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                self._retried += attempt.retry_state.attempt_number > 1
                return await work()
        raise AssertionError("tenacity ends with a result or an exception")

    async def _sampling_client(self, **which: str) -> Any:
        client = _present(self._service).client
        return await self._retrying(
            lambda: self._call("a sampling client", client.create_sampling_client(retry_config=RETRIES, **which))
        )

    # --- learning -------------------------------------------------------------------------------------------------

    async def train(self, step: TrainingStep) -> Mapping[str, float]:
        async with self._lock:
            metrics, sampler_path, sampler = await self._retrying(lambda: self._whole_step(step))
            self._ahead = None
            self._state, self._sampler = self._state.trained(sampler_path), sampler
            self._steps += 1
            self._unsaved += 1
            self._saved.add_sampler(sampler_path)
            retried, self._retried = self._retried, 0
        return metrics | {"retried": float(retried)}

    async def _whole_step(self, step: TrainingStep) -> tuple[dict[str, float], str, Any]:
        """One step from the state at its beginning; after a failure the training client is given up."""
        try:
            if self._training is None:
                await self._rebuild()
            metrics = await self._update(step)
            path = await self._save_for_sampler(f"step-{self._steps + 1:06d}")
            client = _present(self._service).client.create_sampling_client(model_path=path, retry_config=RETRIES)
            return metrics, path, await self._call("a sampling client", client)
        except BaseException:
            self._give_up_client()
            raise

    async def accumulate(self, step: TrainingStep) -> None:
        """A pass over samples of the first substep. A failure costs no more than the pass, which `train` repeats."""
        async with self._lock:
            ahead = self._ahead_of(step)
            ahead.sizes.append(len(step.samples))
            if ahead.done < len(ahead.sizes) - 1:
                return  # after a failure all of them are left to `train`
            try:
                if self._training is None:
                    await self._rebuild()
                shaped = shape_step(step)
                pairs = list(zip(shaped.samples, shaped.advantages, strict=True))
                ahead.told.add_part(pairs, await self._call("a training pass", self._pass(step, pairs)))
                ahead.done += 1
            except InfrastructureError as error:
                _log.warning("a training pass failed, and is repeated with the rest of the step: %s", error.message)
                self._give_up_client()
            except BaseException:
                self._give_up_client()
                raise

    def _ahead_of(self, step: TrainingStep) -> Ahead:
        if self._ahead is None or self._ahead.step != step.step:
            self._ahead = Ahead(step.step, step.loss)
        return self._ahead

    def _give_up_client(self) -> None:
        """The training client is useless, and with it the gradients at the server."""
        self._training = None
        if self._ahead is not None:
            self._ahead.restart()

    def _pass(self, step: TrainingStep, pairs: Sequence[tuple[TrainingSample, Sequence[float]]]) -> Any:
        data = [datum(sample, row) for sample, row in pairs]
        return self._training.forward_backward(data, step.loss.name, loss_options(step.loss))

    async def _update(self, step: TrainingStep) -> dict[str, float]:
        shaped = await self._shape(step)
        ahead = self._ahead_of(step)
        pairs = list(zip(shaped.samples, shaped.advantages, strict=True))
        for number, part in enumerate(parts(pairs, step.substeps)):
            pieces = ahead.left(part) if number == 0 else [part]
            # All are sent before the first is awaited, so the server has no gap to wait in.
            passes = [(piece, self._pass(step, piece)) for piece in pieces]
            update = self._training.optim_step(adam(step.optimizer))
            for piece, future in passes:
                ahead.told.add_part(piece, await self._call("a training pass", future))
            ahead.told.add_norm((await self._call("an optimizer step", update)).metrics)
        return ahead.told.metrics() | dict(shaped.metrics)

    async def _shape(self, step: TrainingStep) -> ShapedStep:
        present = reference = None
        if step.loss.mismatch is not None:
            data = [scored_datum(sample) for sample in step.samples]
            output = await self._call("a forward pass", self._training.forward(data, "cross_entropy"))
            present = [row.tolist() for row in present_logprobs(step.samples, output)]
        if step.loss.kl:
            reference = await self._reference_logprobs(step.samples)
        return shape_step(step, present=present, reference=reference)

    async def _reference_logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """[sample][token] log-probabilities under the model as it started."""
        if self._reference is None:
            which = {"base_model": self._model}
            if self._state.first_sampler is not None:
                which = {"model_path": self._state.first_sampler}
            self._reference = await self._sampling_client(**which)
        reference = self._reference

        async def score(sample: TrainingSample) -> list[float]:
            tokens, n = [*sample.prompt_tokens, *sample.tokens], len(sample.tokens)
            prompt = types.ModelInput.from_ints(tokens)
            future = reference.compute_logprobs(prompt, prompt_logprobs_last_n=n)
            scores = await self._call("the reference", future, timeout_s=self._options.sample_timeout_s)
            return [float(score) for score in scores[-n:]]

        return list(await asyncio.gather(*(self._retrying(lambda s=sample: score(s)) for sample in samples)))

    async def _begin(self) -> None:
        """A training client at the start of the run."""
        client, options = _present(self._service).client, self._options
        if options.start_from is not None:
            future = client.create_training_client_from_state(options.start_from)
        else:
            seed = _present(self._context).seed % 2**31
            future = client.create_lora_training_client(base_model=self._model, rank=options.lora_rank, seed=seed)
        self._training = await self._call(f"a training client for {self._model}", future)
        if options.start_from is not None and self._sampler is None:
            path = await self._save_for_sampler("start")
            self._state = SavedState(sampler=path, first_sampler=path)
            self._sampler = await self._sampling_client(model_path=path)

    async def _rebuild(self) -> None:
        """A training client at the state of the last checkpoint, which is that of now.

        Raises:
            KernelRLError: steps were made since, and would be lost.
        """
        if self._unsaved:
            raise KernelRLError(
                f"the training client failed {self._unsaved} steps after the last checkpoint, which are lost with it",
                fix="kernelrl resume RUN; train.checkpoint_every=1 makes such failures harmless",
            )
        if self._state.state is None:
            await self._begin()
            return
        _log.warning("the training client is made again from %s", self._state.state)
        self._training = await self._client_from(self._state.state)

    async def _client_from(self, path: str) -> Any:
        client = _present(self._service).client
        return await self._call(
            f"a training client from {path}", client.create_training_client_from_state_with_optimizer(path)
        )

    async def _save_for_sampler(self, name: str) -> str:
        future = self._training.save_weights_for_sampler(name, ttl_seconds=self._ttl())
        return str((await self._call("saving sampler weights", future)).path)

    def _ttl(self) -> int | None:
        return None if self._is_local else seconds_to_live(self._options.checkpoint_days)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    async def save(self, directory: Path) -> Mapping[str, Any]:
        async with self._lock:
            try:
                if self._training is None:
                    await self._rebuild()
                name = f"checkpoint-{self._steps:06d}"
                future = self._training.save_state(name, ttl_seconds=self._ttl(), overwrite=True)
                path = str((await self._call("saving the state", future)).path)
                sampler = self._state.sampler or await self._save_for_sampler(name)
            except InfrastructureError as error:
                self._training = None
                raise KernelRLError(f"the checkpoint could not be saved: {error.message}") from error
            self._state = SavedState(path, sampler, self._state.first_sampler)
            content = self._state.to_json() | {"model": self._model_key, "steps": self._steps}
            await asyncio.to_thread(self._write, directory, content)
            self._unsaved = 0
            self._saved.add(self._state, directory.name.removeprefix("."))
            await self._prune(directory.parent)
            return content

    def _write(self, directory: Path, content: Mapping[str, Any]) -> None:
        if self._server is not None:
            # The server's directory may go; a checkpoint of a local run is whole in itself.
            for kind, path in self._state.paths():
                self._server.export(path, directory / kind)
        (directory / STATE_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        if state.get("model") != self._model_key:
            raise UsageError(
                f"the checkpoint {directory} is of the model {state.get('model')!r}, "
                f"and the recipe's policy is {self._model_key!r}"
            )
        saved = SavedState.from_json(state)
        if self._server is not None:
            for kind, path in saved.paths():
                if (directory / kind).is_dir():
                    await asyncio.to_thread(self._server.adopt, path, directory / kind)
        self._state, self._steps, self._unsaved = saved, int(state["steps"]), 0
        self._saved.add(saved, directory.name)
        try:
            if _present(self._context).loss:
                self._training = await self._client_from(_present(saved.state))
            self._sampler = await self._sampling_client(model_path=_present(saved.sampler))
        except UsageError as error:
            raise UsageError(
                f"the checkpoint {directory} cannot be loaded: {error.message}",
                fix="it may have expired at the server (policy.checkpoint_days), or be of another account",
            ) from error

    async def _prune(self, directory: Path) -> None:
        """Delete at the server what no checkpoint of the run refers to any more. A failure costs only space there."""
        names = (path.parent.name for path in directory.glob(f"*/{STATE_FILE}"))
        for path in self._saved.superfluous({name for name in names if not name.startswith(".")}):
            try:
                future = _present(self._service).rest.delete_checkpoint_from_tinker_path(path)
                await self._call(f"deleting {path}", future, timeout_s=60)
            except KernelRLError as error:
                _log.info("not deleted: %s", error.message)

    # --- helpers --------------------------------------------------------------------------------------------------

    async def _call(self, doing: str, awaitable: Any, *, timeout_s: float | None = None) -> Any:
        return await _present(self._service).call(doing, awaitable, timeout_s=timeout_s)


def _fresh_directory(run_dir: Path | None) -> Path:
    """A directory for a server that ends with this process; what a killed one left in the run is removed.

    Checkpoints hold their own files, so nothing in it outlives the process.
    """
    for left in run_dir.glob(f"{_LOCAL_STATE}*") if run_dir is not None else ():
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_LOCAL_STATE, dir=run_dir))


def _present(value: T | None) -> T:
    if value is None:
        raise KernelRLError("the policy was used before start()")
    return value
