"""The policy `tinker`: a model that is sampled and trained through Tinker's SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs
from tinker import types

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.api.policies import (
    Loss,
    LossSample,
    Message,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    TrainablePolicy,
    TrainingSample,
    Update,
    require_lossless_tokenizer,
)
from kernelrl_plugin_tinker.chat import Chat, load_tokenizer, make_chat, recommended_renderer
from kernelrl_plugin_tinker.config import CHAT_TEMPLATE, TinkerConfig, problems_of_address
from kernelrl_plugin_tinker.saved import STATE_FILE, SavedState
from kernelrl_plugin_tinker.service import Service, choose_model
from kernelrl_plugin_tinker.trainer import Trainer

if TYPE_CHECKING:
    from kernelrl_plugin_tinker.own_server import OwnServer

__all__ = ["TinkerPolicy"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_NOT_SECRET = "tml-for-a-server-on-this-machine"


class TinkerPolicy(TrainablePolicy):
    """See `Policy`."""

    def __init__(self, options: TinkerConfig) -> None:
        self._options = options
        self._is_local = options.server == "local"
        self.capabilities = options.capabilities()
        self.context_tokens: int = options.context_tokens or options.local.context_tokens
        self._model = self._model_key = options.model or ""
        self._learns = False
        self._seed_bits = 31
        self._own: OwnServer | None = None
        self._service: Service | None = None
        self._trainer: Trainer | None = None
        self._chat: Chat | None = None

    # --- beginning and end ----------------------------------------------------------------------------------------

    async def start(self, context: PolicyContext) -> None:
        options, self._learns = self._options, bool(context.loss)
        self._refuse_bad_address()
        if self._is_local:
            from kernelrl_plugin_tinker.own_server import OwnServer

            self._own = await OwnServer.start(options, context)
            self._model, self._model_key = self._own.model, self._own.model_key
        self._service = Service(
            base_url=self._own.server.base_url if self._own is not None else options.base_url,
            api_key=self._api_key(),
            timeout_s=options.train_timeout_s,
            give_up_after_s=options.give_up_after_s,
            retries=options.retries,
            say=context.say,
            revive=self._own.revive if self._own is not None else None,
        )
        served = await self._service.connect()
        own = await self._service.own_capabilities()
        self._seed_bits = own.seed_bits
        self.capabilities = attrs.evolve(self.capabilities, ratios=own.ratios)
        entry = choose_model(self._model, served, training=self._learns, server=self._service.name)
        self.context_tokens = self._context_of(entry.max_context_length)
        await self._start_chat(context)
        self._trainer = Trainer(self._service, options, self._model, context.seed)
        await self._trainer.begin(context.loss, reference=context.reference)

    def _refuse_bad_address(self) -> None:
        """Check `TINKER_BASE_URL`; `policy.base_url` was checked with the recipe."""
        address = os.environ.get("TINKER_BASE_URL")
        if address and not self._is_local and self._options.base_url is None:
            for problem in problems_of_address("TINKER_BASE_URL", address):
                raise UsageError(
                    problem, fix="export TINKER_BASE_URL=http://HOST:PORT, or set policy.base_url", see="tinker-server"
                )

    def _api_key(self) -> str | None:
        """The API key; None: the SDK looks for it."""
        if self._own is not None:
            return self._own.server.api_key
        if os.environ.get("TINKER_API_KEY") or not self._options.on_this_machine:
            return None
        return _NOT_SECRET

    def _context_of(self, limit: int | None) -> int:
        given, name = self._options.context_tokens, _present(self._service).name
        if limit is None and given is None:
            raise UsageError(
                f"{name} does not report the context length of {self._model!r}",
                fix="set policy.context_tokens",
                see="context",
            )
        if limit is not None and (given or 0) > limit:
            raise UsageError(
                f"policy.context_tokens is {given}; {name} allows {limit}",
                fix=f"set policy.context_tokens={limit}",
                see="context",
            )
        return int(given or limit or 0)

    async def _start_chat(self, context: PolicyContext) -> None:
        given = self._options.renderer
        by_name = given is None and self._options.needs_cookbook
        renderer = given or (recommended_renderer(self._model) if by_name else CHAT_TEMPLATE)
        if by_name and renderer == CHAT_TEMPLATE and not self._is_local:
            context.say(f"tinker-cookbook knows no renderer for {self._model}; using the tokenizer's chat template")
        here = Path(self._model).is_dir()
        files = None if here else await _present(self._service).tokenizer_files(self._model)
        tokenizer = await asyncio.to_thread(load_tokenizer, self._model, renderer, files)
        require_lossless_tokenizer(
            self._model, lambda text: tokenizer.encode(text, add_special_tokens=False), tokenizer.decode
        )
        self._chat = make_chat(self._model, renderer, tokenizer)

    async def aclose(self) -> None:
        try:
            if self._service is not None:
                await self._service.aclose()
        finally:
            if self._own is not None:
                await self._own.aclose()

    # --- sampling -------------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message]) -> Prompt:
        return _present(self._chat).render(messages)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        chat, service, sampler = _present(self._chat), _present(self._service), _present(self._trainer).sampler
        available = self.context_tokens - len(prompt.tokens)
        if available < 1:
            raise UsageError(
                f"the prompt has {len(prompt.tokens)} tokens and the context {self.context_tokens}: "
                "no tokens remain for a reply",
                fix="shorten the prompt (prompt.max_tokens, history.keep) or choose a model with a longer context",
                see="context",
            )
        parameters = types.SamplingParams(
            max_tokens=min(settings.max_tokens, available),
            seed=settings.seed % 2**self._seed_bits,
            stop=chat.stops(settings.stop),
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
        )

        async def request() -> types.SampledSequence:
            future = sampler.sample(types.ModelInput.from_ints(list(prompt.tokens)), 1, parameters)
            response = await service.call("a reply", future, timeout_s=self._options.sample_timeout_s)
            sequence = response.sequences[0] if response.sequences else None
            if sequence is None or not sequence.tokens or len(sequence.tokens) != len(sequence.logprobs or ()):
                raise InfrastructureError(
                    "the server sent an incomplete reply: tokens or log-probabilities are missing"
                )
            return sequence

        sampled = await service.retrying(request)
        reason: Literal["stop", "length"] = "length" if sampled.stop_reason == "length" else "stop"
        return chat.read(prompt, list(sampled.tokens), list(sampled.logprobs or ()), reason, settings.stop)

    # --- learning -------------------------------------------------------------------------------------------------

    async def update(self, update: Update) -> Mapping[str, float]:
        metrics = await _present(self._trainer).update(update)
        return metrics | {"retried": float(_present(self._service).take_retried())}

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        await _present(self._trainer).backward(samples, loss)

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        trainer = _present(self._trainer)
        return await (
            trainer.current_logprobs(samples) if weights == "current" else trainer.reference_logprobs(samples)
        )

    # --- checkpoints ----------------------------------------------------------------------------------------------

    async def save(self, directory: Path) -> Mapping[str, Any]:
        trainer = _present(self._trainer)
        saved = await trainer.save()
        content = saved.to_json() | {"model": self._model_key, "steps": trainer.steps}
        if self._own is not None:
            await asyncio.to_thread(self._own.export, saved, directory)
        (directory / STATE_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
        trainer.at_server.add(saved, directory.name.removeprefix("."))
        await self._prune(directory.parent)
        return content

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        saved = await self._adopt(state, directory)
        if saved.state is None:
            raise UsageError(f"the checkpoint {directory} has no path of the state")
        await _present(self._trainer).begin_from(saved.state)

    async def _adopt(self, state: Mapping[str, Any], directory: Path) -> SavedState:
        """The paths of a checkpoint, whose files are copied to an own server.

        Raises:
            UsageError: the checkpoint is of another model.
        """
        if state.get("model") != self._model_key:
            raise UsageError(
                f"the checkpoint {directory} is of the model {state.get('model')!r}, "
                f"but the recipe's model is {self._model_key!r}",
                fix="set policy.model to the checkpoint's model, or start a new run",
                see="checkpoint-model",
            )
        saved = SavedState.from_json(state)
        if self._own is not None:
            await asyncio.to_thread(self._own.adopt, saved, directory)
        return saved

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        trainer, saved = _present(self._trainer), await self._adopt(state, directory)
        try:
            await trainer.restore(saved, int(state["steps"]), learning=self._learns)
        except UsageError as error:
            raise UsageError(
                f"the checkpoint {directory} cannot be loaded: {error.message}",
                fix="it may have expired at the server (policy.checkpoint_days) or belong to another account; "
                "start a new run",
                see="checkpoint",
            ) from error
        if self._learns and self._own is None:
            await self._recall(directory.parent, int(state["steps"]))
        trainer.at_server.add(saved, directory.name)

    async def _recall(self, directory: Path, steps: int) -> None:
        """Register the saved paths of the run's earlier processes, so that `_prune` deletes them too."""
        service, at_server = _present(self._service), _present(self._trainer).at_server
        for path in sorted(directory.glob(f"[!.]*/{STATE_FILE}")):
            at_server.add(SavedState.from_json(json.loads(path.read_text(encoding="utf-8"))), path.parent.name)
        for run in at_server.training_runs():
            try:
                listed = await service.request(
                    f"listing the checkpoints of {run}", partial(service.rest.list_checkpoints, run), timeout_s=60
                )
            except KernelRLError as error:
                _log.info("checkpoints not listed: %s", error.message)
                continue
            for checkpoint in sorted(listed.checkpoints, key=lambda one: one.time):
                at_server.add_found(checkpoint.tinker_path, steps)

    async def _prune(self, directory: Path) -> None:
        """Delete saved paths at the server that no checkpoint of the run needs. A failure only wastes storage."""
        names = (path.parent.name for path in directory.glob(f"*/{STATE_FILE}"))
        superfluous = _present(self._trainer).at_server.superfluous({n for n in names if not n.startswith(".")})
        service = _present(self._service)
        for path in superfluous:
            delete = partial(service.rest.delete_checkpoint_from_tinker_path, path)
            try:
                await service.request(f"deleting {path}", delete, timeout_s=60)
            except KernelRLError as error:
                _log.info("checkpoint not deleted: %s", error.message)


def _present(value: T | None) -> T:
    if value is None:
        raise KernelRLError("the policy was used before start()")
    return value
