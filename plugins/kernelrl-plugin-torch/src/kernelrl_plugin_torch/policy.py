"""The policy `torch`: a model in this process that samples and trains.

One worker thread does all work on the model, in the order of the calls, so sampling and training never overlap. On a
GPU each piece of work holds a shared device lease: the model computes only while no kernel is timed there.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs
import torch
from torch import Tensor

from kernelrl_core.api.errors import KernelRLError, UsageError
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
    WarmStartExample,
)
from kernelrl_plugin_torch.config import SCRATCH_CONTEXT, TorchConfig
from kernelrl_plugin_torch.devices import DeviceShare, memory_error
from kernelrl_plugin_torch.files import read_tensors, write_tensors
from kernelrl_plugin_torch.language_model import LanguageModel, PromptAndReply, rendered
from kernelrl_plugin_torch.learner import Datum, Learner, Totals, mean_gap, micro_batches
from kernelrl_plugin_torch.model_directory import write_model
from kernelrl_plugin_torch.sampler import Request, Sampler, rows_agree
from kernelrl_plugin_torch.scratch_model import TOKENIZER_FILE, ScratchModel, described_weights
from kernelrl_plugin_torch.scratch_tokenizer import ScratchTokenizer
from kernelrl_plugin_torch.warm_start import WarmStartCache, train_on_demonstrations, warm_start_key

__all__ = ["TorchPolicy", "weights_hash"]

T = TypeVar("T")

_STATE_FILE = "policy.pt"


class TorchPolicy(TrainablePolicy):
    """See `Policy`."""

    def __init__(self, options: TorchConfig) -> None:
        self._options = options
        self.capabilities = options.capabilities()
        self.context_tokens = options.context_tokens or SCRATCH_CONTEXT
        self._worker = ThreadPoolExecutor(
            1, "torch-policy", initializer=torch.set_num_threads, initargs=(options.threads,)
        )
        self._stopping = threading.Event()
        self._share = DeviceShare(options.device, self._check_open)
        self._waiting: set[asyncio.Future[Reply]] = set()
        self._pumping = False
        self._steps = 0
        self._context: PolicyContext | None = None
        self._model: LanguageModel | None = None
        self._sampler: Sampler | None = None
        self._learner: Learner | None = None
        self._partial: _PartialStep | None = None
        """The current step, after the first calls of `backward`."""
        self._reference: dict[str, Tensor] | None = None
        """Weights of the reference policy; only with a KL penalty."""

    # --- beginning and end ----------------------------------------------------------------------------------------

    async def start(self, context: PolicyContext) -> None:
        self._context = context
        if not context.weights_follow:
            await self._start(context)
            await self._keep_reference()
        elif self._options.model is not None:
            await self._do(lambda: self._adopt(self._build(())))
        # A model from scratch is built with the tokenizer of the checkpoint.

    async def _keep_reference(self) -> None:
        """Let the current weights be the reference policy, if the loss needs one."""
        if _present(self._context).reference:
            state = _present(self._model).state()
            self._reference = await self._do(lambda: {name: tensor.clone() for name, tensor in state.items()})

    async def _start(self, context: PolicyContext) -> None:
        settings = self._options.warm_start_settings
        if settings is None:
            await self._do(lambda: self._adopt(self._build(())))
            return
        cache = WarmStartCache(context.cache_dir, context.say)
        key = warm_start_key(self._options, context.demonstrations_key, context.seed)
        if await self._do(lambda: self._from_cache(cache, key)):
            return
        examples = tuple(await context.demonstrations())

        def learn() -> None:
            model = self._build(examples)
            train_on_demonstrations(
                model, examples, settings, seed=context.seed, say=context.say, stopped=self._stopping.is_set,
                reply_tokens=context.reply_tokens,
            )  # fmt: skip
            content: dict[str, Any] = {"weights": self._stored(model.state())}
            model.load_state(content["weights"])  # equal to those of a later run, which finds them in the cache
            if isinstance(model, ScratchModel):
                content["tokenizer"] = model.tokenizer.to_json()
            cache.put(key, content)
            self._adopt(model)

        await self._do(learn)

    def _from_cache(self, cache: WarmStartCache, key: str) -> bool:
        content = cache.get(key)
        if content is None:
            return False
        tokenizer = content.get("tokenizer")
        model = self._scratch(ScratchTokenizer.from_json(tokenizer)) if tokenizer else self._build(())
        model.load_state(content["weights"])
        self._adopt(model)
        return True

    def _build(self, examples: Sequence[WarmStartExample]) -> LanguageModel:
        """The model before any training."""
        options = self._options
        if options.model is not None:
            from kernelrl_plugin_torch.huggingface import HuggingFaceModel

            return HuggingFaceModel(options, seed=_present(self._context).seed)
        texts: dict[str, list[str]] = {}
        for example in examples:
            seen = texts.setdefault(example.task_id, [])
            seen += [message.content for message in example.messages] + [example.reply]
        return self._scratch(
            ScratchTokenizer.train(texts.values(), vocabulary=options.vocabulary, min_tasks=options.token_min_tasks)
        )

    def _scratch(self, tokenizer: ScratchTokenizer) -> ScratchModel:
        options = self._options
        return ScratchModel(
            tokenizer,
            width=options.width,
            layers=options.layers,
            heads=options.heads,
            context_tokens=options.context_tokens or SCRATCH_CONTEXT,
            seed=self._context.seed if self._context else 0,
            device=options.device,
        )

    def _adopt(self, model: LanguageModel) -> None:
        """Sample and train with this model from now on."""
        rows = self._options.sample_rows or (64 if isinstance(model, ScratchModel) else 16)
        # On a GPU a reply may depend on its batch: the order of sums varies there.
        if rows > 1 and model.device.type == "cpu" and not rows_agree(model, rows):
            if self._context is not None:
                self._context.say(
                    f"policy torch: the rows of a batch of {rows} have different rounding; sampling one reply at a time"
                )
            rows = 1
        self._model, self.context_tokens = model, model.context_tokens
        self._sampler = Sampler(model, rows)
        self._sampler.give_way = self._share.give_way
        self._learner = Learner(model, self._options.train_tokens)
        self._partial = None
        model.module.zero_grad(set_to_none=True)

    async def aclose(self) -> None:
        self._stopping.set()
        for future in list(self._waiting):
            future.cancel()
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    # --- sampling -------------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message]) -> Prompt:
        return rendered(_present(self._model), messages)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        sampler = _present(self._sampler)
        available = self.context_tokens - len(prompt.tokens)
        if available < 1:
            raise UsageError(
                f"the prompt has {len(prompt.tokens)} tokens and the context {self.context_tokens}: "
                "no tokens remain for a reply",
                fix="shorten the prompt (prompt.max_tokens, history.keep) or raise policy.context_tokens",
                see="context",
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        request = Request(
            prompt.tokens,
            attrs.evolve(settings, max_tokens=min(settings.max_tokens, available)),
            deliver=lambda reply: _call(loop, _settle, future, reply),
            fail=lambda error: _call(loop, _settle, future, memory_error(error) or error),
            wanted=lambda: not (future.done() or self._stopping.is_set()),
        )
        self._waiting.add(future)
        try:
            sampler.submit(request)
            # Deferred by one pass of the event loop, so that concurrent calls start in one batch.
            loop.call_soon(self._pump, loop, sampler)
            return await future
        finally:
            self._waiting.discard(future)

    def _pump(self, loop: asyncio.AbstractEventLoop, sampler: Sampler) -> None:
        """Start the worker's sampling, unless it is running. Called on the event loop."""
        if self._pumping or self._stopping.is_set():
            return
        self._pumping = True
        work = self._worker.submit(self._share.do, sampler.run)
        work.add_done_callback(lambda done: _call(loop, self._pumped, loop, sampler, done.exception()))

    def _pumped(self, loop: asyncio.AbstractEventLoop, sampler: Sampler, error: BaseException | None) -> None:
        self._pumping = False
        if error is not None:
            for future in list(self._waiting):
                _settle(future, error)
        elif any(not future.done() for future in self._waiting):
            # A request was submitted after the worker last checked the queue.
            self._pump(loop, sampler)

    # --- learning -------------------------------------------------------------------------------------------------

    async def update(self, update: Update) -> Mapping[str, float]:
        def work() -> dict[str, float]:
            metrics = self._learn(update)
            _present(self._sampler).weights_changed()
            self._steps += 1
            return metrics

        return await self._do(work)

    def _learn(self, update: Update) -> dict[str, float]:
        learner, loss = _present(self._learner), update.loss
        partial, self._partial = self._partial, None
        if partial is None or partial.n_samples != sum(update.accumulated):
            learner.take_gradients()  # discards those of an abandoned or failed step
            partial = _PartialStep()
        totals, norms, gap = partial.totals, [], 0.0
        for substep in update.substeps:
            data = [_datum(sample) for sample in substep]
            seen = partial.seen if not norms else []
            seen += learner.backward(data[len(seen) :], loss.name, _bounds(loss), totals, loss.ratio)
            if not norms:
                gap = mean_gap([datum.sampled for datum in data], [row.tolist() for row in seen])
            norms.append(learner.update(update.optimizer))
        norm = sum(norms) / len(norms) if norms else 0.0
        return totals.metrics() | {"grad_norm": norm, "mismatch": gap}

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        learner = _present(self._learner)

        def work() -> None:
            partial = self._partial = self._partial or _PartialStep()
            # The last, possibly incomplete batch waits for later samples, so that batches equal those of a whole step.
            data = [*partial.waiting, *map(_datum, samples)]
            *whole, partial.waiting = micro_batches(data, learner.max_tokens)
            for batch in whole:
                partial.seen += learner.backward(batch, loss.name, _bounds(loss), partial.totals, loss.ratio)
            partial.n_samples += len(samples)  # last: after a failure the counts differ and `update` starts again

        await self._do(work)

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        pairs = [PromptAndReply(sample.prompt_tokens, sample.tokens, sample.temperature) for sample in samples]
        if weights == "reference":
            return await self._do(lambda: self._reference_logprobs(pairs))
        return await self._do(lambda: _present(self._learner).logprobs(pairs))

    def _reference_logprobs(self, pairs: Sequence[PromptAndReply]) -> list[list[float]]:
        if self._reference is None:
            raise KernelRLError("the policy was started without a reference policy, but the loss has a KL penalty")
        model = _present(self._model)
        current = {name: tensor.clone() for name, tensor in model.state().items()}
        model.load_state(self._reference)
        try:
            return _present(self._learner).logprobs(pairs)
        finally:
            model.load_state(current)

    async def save(self, directory: Path) -> Mapping[str, Any]:
        def work() -> dict[str, Any]:
            model = _present(self._model)
            content = {
                "weights": self._stored(model.state()),
                "optimizer": self._stored(_present(self._learner).state()),
                "steps": self._steps,
            }
            write_tensors(directory / _STATE_FILE, content)
            model.save_extras(directory)
            return {
                "file": _STATE_FILE,
                "steps": self._steps,
                "weights_sha256": weights_hash(model.state()),
                "model": self._described(model.state()),
            }

        return await self._do(work)

    async def export(self, directory: Path) -> None:
        """Write the model into an existing directory: a model from scratch in the format of this plugin, a Hugging Face
        model with its tokenizer for `from_pretrained`, of one with LoRA only the adapters in PEFT's format."""
        model: Any = _present(self._model)

        def work() -> None:
            if isinstance(model, ScratchModel):
                write_model(model, directory)
            else:
                model.write(directory)

        await self._do(work)

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        await self._do(lambda: self._restore(state, directory, optimizer=True))

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        await self._do(lambda: self._restore(state, directory, optimizer=False))
        await self._keep_reference()

    def _restore(self, state: Mapping[str, Any], directory: Path, *, optimizer: bool) -> None:
        """Load a checkpoint; without `optimizer` its weights only."""
        path = directory / str(state.get("file", _STATE_FILE))
        try:
            content = read_tensors(path)
        except Exception as error:
            raise KernelRLError(f"cannot read the checkpoint {path}: {error}") from error
        model, tokenizer = self._model, directory / TOKENIZER_FILE
        if (self._options.model is None) != tokenizer.is_file():
            theirs = state.get("model", "of Hugging Face")
            theirs = described_weights(content["weights"]) if tokenizer.is_file() else theirs
            ours = "one from scratch" if self._options.model is None else self._described({})
            raise UsageError(
                f"the model of the checkpoint {directory} is {theirs}; that of the recipe's policy is {ours}",
                fix="set policy.model as that run did",
                see="checkpoint-model",
            )
        if self._options.model is None:
            model = self._scratch(ScratchTokenizer.from_json(tokenizer.read_text(encoding="utf-8")))
        model = _present(model)
        try:
            model.load_state(content["weights"])
            self._adopt(model)
            if optimizer:
                _present(self._learner).load_state(content["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            theirs = state.get("model", "another one")
            theirs = described_weights(content["weights"]) if self._options.model is None else theirs
            raise UsageError(
                f"the model of the checkpoint {directory} is {theirs}; that of the recipe's policy is "
                f"{self._described(model.state())}",
                fix="set the options of policy to those of the run that saved it",
                see="checkpoint-model",
            ) from error
        self._steps = content["steps"] if optimizer else 0

    def _stored(self, values: Any) -> Any:
        """Containers of tensors, with floats in the dtype of checkpoints."""
        if self._options.checkpoint_dtype == "float32":
            return values
        if isinstance(values, dict):
            return {key: self._stored(value) for key, value in values.items()}
        if isinstance(values, Tensor) and values.is_floating_point() and values.dim() > 0:
            return values.to(torch.bfloat16)
        return values

    def _described(self, weights: Mapping[str, Tensor]) -> str:
        """The model of the policy in words; `weights` have its sizes."""
        if self._options.model is None:
            return described_weights(weights)
        rank = self._options.lora_rank
        return f"{self._options.model}{f' with LoRA adapters of rank {rank}' if rank else ''}"

    # --- helpers --------------------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._share.do, work)

    def _check_open(self) -> None:
        if self._stopping.is_set():
            raise KernelRLError("the policy is closed")


@attrs.define(eq=False)
class _PartialStep:
    """A step whose gradients are accumulated before `update`."""

    n_samples: int = 0
    """Number of samples in successful calls of `backward`."""
    totals: Totals = attrs.field(factory=Totals)
    seen: list[Tensor] = attrs.field(factory=list)
    """[sample] results of `Learner.backward` for the samples with accumulated gradients."""
    waiting: Sequence[Datum] = ()
    """Later samples, which have no gradients yet."""


def _datum(sample: LossSample) -> Datum:
    return Datum(sample.prompt_tokens, sample.tokens, sample.sampler_logprobs, sample.advantages, sample.temperature)


def _bounds(loss: Loss) -> tuple[float, float]:
    return 1 - loss.clip_low, 1 + loss.clip_high


def weights_hash(state: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 of the names, shapes, dtypes and bytes of the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _present(value: T | None) -> T:
    if value is None:
        raise KernelRLError("the policy was used before start()")
    return value


def _settle(future: asyncio.Future[Reply], result: Reply | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call a function on the event loop, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
