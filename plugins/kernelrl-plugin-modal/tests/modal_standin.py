"""A stand-in for Modal: functions with containers, on the clock of the event loop, and a loop with a virtual clock.

`test_sdk_contract` asserts that Modal's own client has these signatures, exceptions and this behaviour of cancelling.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import modal.exception

from kernelrl_core.api.components import registry, worker_versions
from kernelrl_plugin_modal.config import ModalConfig
from kernelrl_plugin_modal.evaluator import ModalEvaluator
from kernelrl_plugin_modal.image import DISTRIBUTIONS
from kernelrl_testing.waiting import takes_async

T = TypeVar("T")

COLD_START_S = 13.8
WARM_S = (1.0, 3.0)
"""Range of the time that a warm container takes for a message."""
GPU = "NVIDIA H100 80GB HBM3"
OUTAGES: tuple[Callable[[], Exception], ...] = (
    lambda: modal.exception.ConnectionError("the connection was lost"),
    lambda: modal.exception.ServiceError("unavailable"),
    lambda: modal.exception.InternalFailure("the container was lost"),
    lambda: modal.exception.FunctionTimeoutError("the container hangs"),
    lambda: modal.exception.RemoteError("exit code 137"),
    lambda: modal.exception.ResourceExhaustedError("rate limit"),
    lambda: modal.exception.OutputExpiredError(),
)


class _VirtualSelector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(None if timeout is None else 0)
        if not found and timeout:
            self.now_s += timeout
        return found


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop whose clock jumps to the next timer."""
    selector = _VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)


class _Method:
    """A method of Modal's blocking interface; `aio` is its asynchronous form, which alone is used."""

    def __init__(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self.aio = method


class Call:
    """Replaces `modal.FunctionCall`."""

    def __init__(self, function: Function, text: str) -> None:
        self.function, self.text = function, text
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.work: asyncio.Task[None] | None = None
        self.get, self.cancel = _Method(self._get), _Method(self._cancel)

    async def _get(self, timeout: float | None = None, *, index: int = 0) -> Any:
        try:
            return await asyncio.shield(self.done)
        except asyncio.CancelledError:
            # As with Modal, nothing is promised about the client after this.
            self.function.broken = True
            raise

    async def _cancel(self, terminate_containers: bool = False) -> None:
        await takes_async(0.05)
        if self in self.function.queue:
            self.function.queue.remove(self)
        if self.work is not None:
            self.work.cancel()
        if not self.done.done():
            self.done.set_exception(modal.exception.RemoteError(""))


class Function:
    """Replaces `modal.Function`: at most `containers` of them, each started by the first message that finds none free.

    Args:
        serve: the response of a container to a message.
        outages: share of calls that fail.
    """

    def __init__(
        self,
        containers: int,
        serve: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        outages: float = 0.0,
        seed: int = 0,
        warm_s: Callable[[dict[str, Any], random.Random], float] = lambda message, draw: draw.uniform(*WARM_S),
    ) -> None:
        self.queue: deque[Call] = deque()
        self.broken = False
        self.busy_s = 0.0
        self.n_served = 0
        self.spawn = _Method(self._spawn)
        self._serve, self._outages, self._warm_s = serve, outages, warm_s
        self._draw = random.Random(seed)
        self._cold, self.n_free = containers, 0

    async def _spawn(self, text: str) -> Call:
        if self.broken:
            await asyncio.Event().wait()
        await takes_async(0.05)
        if self._draw.random() < self._outages / 2:
            raise self._draw.choice(OUTAGES)()
        call = Call(self, text)
        self.queue.append(call)
        self._hand_out()
        return call

    def _hand_out(self) -> None:
        while self.queue and self.n_free + self._cold:
            start_s = 0.0
            if self.n_free:
                self.n_free -= 1
            else:
                self._cold, start_s = self._cold - 1, COLD_START_S
            call = self.queue.popleft()
            call.work = asyncio.create_task(self._work(call, start_s))

    async def _work(self, call: Call, start_s: float) -> None:
        try:
            await takes_async(start_s)
            message = json.loads(call.text)
            seconds = self._warm_s(message, self._draw)
            await takes_async(seconds)
            self.busy_s += seconds
            self.n_served += 1
            if not call.done.done():
                if self._draw.random() < self._outages / 2:
                    call.done.set_exception(self._draw.choice(OUTAGES)())
                else:
                    call.done.set_result(json.dumps({**self._serve(message), "seconds": seconds}))
        finally:
            self.n_free += 1
            self._hand_out()


def describe() -> dict[str, Any]:
    """What a container of the deployed app says about itself."""
    return {"versions": worker_versions(registry(), *DISTRIBUTIONS), "gpu": GPU, "arch": "9.0"}


def served(message: dict[str, Any]) -> dict[str, Any]:
    """A response whose detail is the hash of the request's source, so that a mix-up shows."""
    if message["do"] == "describe":
        return describe()
    evaluation = {"outcome": "correct", "detail": message["request"]["source_sha256"], "provenance": {"gpu": GPU}}
    return {"evaluation": evaluation}


def evaluator_on(judges: Any, builders: Any = None, **options: Any) -> ModalEvaluator:
    """An evaluator that has found its app."""
    made = ModalEvaluator(ModalConfig(**{"gpu": "H100", **options}))
    made._gpu, made._cpu = judges, builders or judges
    return made
