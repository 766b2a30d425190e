"""Batched sampling with replies that do not depend on their batch.

Requests wait in a queue. A decoder has a fixed number of rows. Idle rows take waiting requests before every step
(continuous batching) if the model supports it (`LanguageModel.joins`), else when all rows have ended. Each reply is
delivered as soon as it ends. Shapes are fixed and rows are independent, so a reply is a function of the weights, the
prompt and its seed.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence

import attrs
import torch
from torch import Tensor

from kernelrl_core.api.policies import Reply, SamplingSettings
from kernelrl_plugin_torch.drawing import HostCopy, draw, uniforms
from kernelrl_plugin_torch.language_model import Decoder, LanguageModel, Prefix, undefined_model

__all__ = ["Request", "Sampler", "rows_agree"]

_KEPT_PREFIXES = 32


@attrs.define(eq=False)
class Request:
    """A request for one reply."""

    prompt: tuple[int, ...]
    settings: SamplingSettings
    """The prompt and `max_tokens` together fit into the context."""
    deliver: Callable[[Reply], None]
    fail: Callable[[BaseException], None]
    wanted: Callable[[], bool]
    """False after the caller has stopped waiting."""
    stop_tokens: frozenset[int] | None = None
    """Tokens that end the reply; None: the model's own."""


class Sampler:
    """Samples the replies of requests. Used by one thread; only `submit` may be called from other threads."""

    def __init__(self, model: LanguageModel, rows: int) -> None:
        self._model = model
        self._rows = rows
        self.give_way: Callable[[], None] = lambda: None
        """Called before every token of a batch: other work on the device need not wait for whole replies."""
        self._queue: deque[Request] = deque()
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def submit(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def waiting(self) -> int:
        """Number of requests that no row has taken yet."""
        return len(self._queue)

    def abandon(self, error: BaseException) -> None:
        """Fail all waiting requests with an error."""
        while self._queue:
            self._queue.popleft().fail(error)

    def weights_changed(self) -> None:
        """Discard cached prompts, which were computed with earlier weights."""
        self._prefixes.clear()

    @torch.inference_mode()
    def run(self) -> None:
        """Sample until no request waits."""
        self._model.module.eval()
        while self._queue:
            waiting = [self._queue.popleft() for _ in range(len(self._queue))]
            shapes = OrderedDict.fromkeys(self._model.shape(len(request.prompt)) for request in waiting)
            self._queue.extendleft(reversed(waiting))
            for shape in shapes:
                self._run_shape(shape)

    def _run_shape(self, shape: Hashable) -> None:
        rows: list[_Row | None] = [None] * self._rows
        decoder = self._model.decoder(self._rows, shape)
        logits: Tensor | None = None
        while True:
            self.give_way()
            if logits is None or self._model.joins:
                for request, prefix in self._prefilled(self._take(shape, rows.count(None))):
                    row = rows.index(None)
                    rows[row] = _Row(request)
                    decoder.admit(row, prefix)
                    if logits is None:
                        logits = prefix.logits.new_zeros(self._rows, len(prefix.logits))
                    logits[row] = prefix.logits
            if logits is None or not any(rows):
                return
            try:
                logits = self._advance(rows, logits, decoder)
            except Exception as error:
                for row in filter(None, rows):
                    row.request.fail(error)
                return

    def _advance(self, rows: list[_Row | None], logits: Tensor, decoder: Decoder) -> Tensor:
        """Sample one token for every busy row; returns the next logits [rows, vocabulary].

        The next step is started before the tokens are looked at: a GPU computes it meanwhile. For a reply that ends
        with its token, the step is in vain.
        """
        numbers = torch.tensor([0.0 if row is None else row.next_number() for row in rows], dtype=torch.float64)
        settings = [None if row is None else row.request.settings for row in rows]
        drawn = draw(logits, numbers, settings)
        seen = HostCopy(*drawn)
        logits = decoder.step(drawn[0])
        tokens, logprobs = seen.lists()
        for index, row in enumerate(rows):
            if row is None:
                continue
            if math.isnan(logprobs[index]):
                raise undefined_model()
            reply = row.extend(tokens[index], logprobs[index], self._model)
            if reply is not None or not row.request.wanted():
                if reply is not None:
                    row.request.deliver(reply)
                rows[index] = None
                decoder.release(index)
        return logits

    def _take(self, shape: Hashable, n: int) -> list[Request]:
        """At most `n` waiting requests of a shape; requests that are no longer wanted are removed."""
        taken: list[Request] = []
        for _ in range(len(self._queue)):
            request = self._queue.popleft()
            if not request.wanted():
                continue
            if len(taken) < n and self._model.shape(len(request.prompt)) == shape:
                taken.append(request)
            else:
                self._queue.append(request)
        return taken

    def _prefilled(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Prefix]]:
        """The requests with their prompts after the forward pass; a request fails if its prompt does."""
        unknown = list(dict.fromkeys(request.prompt for request in requests if request.prompt not in self._prefixes))
        failed: dict[tuple[int, ...], Exception] = {}
        for start in range(0, len(unknown), self._model.prefill_prompts):
            prompts = unknown[start : start + self._model.prefill_prompts]
            try:
                self._prefixes.update(zip(prompts, self._model.prefill(prompts), strict=True))
            except Exception as error:
                failed.update(dict.fromkeys(prompts, error))
        for request in requests:
            if request.prompt in failed:
                request.fail(failed[request.prompt])
            else:
                self._prefixes.move_to_end(request.prompt)
                yield request, self._prefixes[request.prompt]
        while len(self._prefixes) > _KEPT_PREFIXES:
            self._prefixes.popitem(last=False)


class _Row:
    """An unfinished reply."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._numbers = uniforms(request.settings.seed, request.settings.max_tokens)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []

    def next_number(self) -> float:
        return self._numbers[len(self._tokens)]

    def extend(self, token: int, logprob: float, model: LanguageModel) -> Reply | None:
        """Append a token; returns the reply if this token ends it."""
        self._tokens.append(token)
        self._logprobs.append(logprob)
        settings = self.request.settings
        ends_with = self.request.stop_tokens
        if token in (model.stop_tokens if ends_with is None else ends_with):
            return self._reply(model.decode(self._tokens[:-1]), "stop")
        if settings.stop:
            text = model.decode(self._tokens)
            ends = [text.find(stop) + len(stop) for stop in settings.stop if stop in text]
            if ends:
                return self._reply(text[: min(ends)], "stop")
        if len(self._tokens) == settings.max_tokens:
            return self._reply(model.decode(self._tokens), "length")
        return None

    def _reply(self, text: str, reason: str) -> Reply:
        return Reply(text, tuple(self._tokens), tuple(self._logprobs), "stop" if reason == "stop" else "length")


@torch.inference_mode()
def rows_agree(model: LanguageModel, rows: int) -> bool:
    """True if equal rows of a decoder have bitwise equal results on this device, also in a batch with longer rows.

    Matrix libraries may use another order of operations for the last rows of a matrix, or for sums with trailing zeros.
    The order does not depend on the values, so a few steps with equal rows are a sufficient test.

    Raises:
        UsageError: the results are NaN.
    """
    model.module.eval()
    joined = model.joins and rows > 1
    longest: Prefix | None = None
    if joined:
        (longest,) = model.prefill([[index * 11 % 251 for index in range(max(1, model.context_tokens - 8))]])
    for length in (23, 150, 300, 600) if joined else (23,):
        if length >= model.context_tokens:
            continue
        (prefix,) = model.prefill([[index * 7 % 251 for index in range(length)]])
        equal, mixed = (model.decoder(rows, model.shape(length)) for _ in range(2))
        for row in range(rows):
            equal.admit(row, prefix)
        mixed.admit(rows - 1, prefix)
        if longest is not None:
            mixed.admit(0, longest)
        for token in (3, 50, 101):
            tokens = torch.full((rows,), token, device=model.device)
            logits = equal.step(tokens)
            if logits.isnan().any():
                raise undefined_model()
            if not torch.equal(logits, logits[:1].expand_as(logits)):
                return False
            if not torch.equal(mixed.step(tokens)[-1], logits[-1]):
                return False
    return True
