"""Actors of a kind, as the driver sees them: started, replaced when they are lost, and given work.

A call waits for a free actor. If its actor is lost, with its process or node, another one gets the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from kernelrl_core.api.errors import InfrastructureError, KernelRLError

__all__ = ["ActorPool"]

logger = logging.getLogger(__name__)

_LOSSES = 5
"""Actors that one call may lose. More would let a call that kills its actors go on for ever."""
_LOOK_S = 5.0
"""Between two looks at the nodes of the cluster."""
_SAY_S = 60.0
_END_TIMEOUT_S = 5.0


@attrs.define(eq=False)
class _Actor:
    handle: Any
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    ready: bool = False
    resting: str = ""
    """Reason why it gets no calls now."""
    n_calls: int = 0


class Resting(Exception):
    """An actor must not get calls until `ActorPool` finds it well; the argument is why."""


class ActorPool:
    """Actors of one kind.

    Args:
        name: of an actor, in messages.
        make: starts an actor and returns its handle.
        wanted: number of actors that fit into the cluster now. Blocks.
        depth: calls that an actor has at a time.
        accept: raises `KernelRLError` if an actor with these facts must not be used.
        lost: exceptions of Ray that mean that an actor is lost.
        kill: ends an actor at once.
        cancel: cancels the call of a Ray object.
    """

    def __init__(
        self,
        name: str,
        *,
        make: Callable[[], Any],
        wanted: Callable[[], int],
        depth: int,
        accept: Callable[[Mapping[str, Any]], None],
        lost: tuple[type[BaseException], ...],
        kill: Callable[[Any], None],
        cancel: Callable[[Any], None],
    ) -> None:
        self._name, self._make, self._wanted, self._depth = name, make, wanted, depth
        self._accept, self._lost, self._kill, self._cancel = accept, lost, kill, cancel
        self._actors: list[_Actor] = []
        self._waiting: deque[asyncio.Future[_Actor]] = deque()
        self._changed = asyncio.Event()
        self._any_ready = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self.refused: KernelRLError | None = None
        """Why the first actor that was not accepted was not."""
        self.why_not = ""
        """Why the last actor did not start."""

    @property
    def capacity(self) -> int:
        """Calls that the actors which are ready take at a time."""
        return self._depth * sum(actor.ready for actor in self._actors)

    @property
    def handles(self) -> list[Any]:
        """Handles of the actors that are ready."""
        return [actor.handle for actor in self._actors if actor.ready]

    async def start(self, timeout_s: float) -> bool:
        """Start actors, and wait for the first one; whether it is ready in time.

        Raises:
            KernelRLError: an actor was not accepted.
        """
        self._in_background(self._keep_full())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._any_ready.wait()
        if self.refused is not None:
            raise self.refused
        return self._any_ready.is_set()

    async def call(self, method: Callable[[Any], Any]) -> tuple[Any, Mapping[str, Any]]:
        """The result of a method of an actor, and the facts of this actor.

        Args:
            method: calls it on the handle that it is given, and returns the Ray object of the result.

        Raises:
            InfrastructureError: several actors were lost with this call.
            What the method raises.
        """
        losses: list[str] = []
        while len(losses) < _LOSSES:
            actor = await self._take()
            try:
                return await self._result(method(actor.handle)), actor.facts
            except self._lost as error:
                losses.append(_text(error))
                self._lose(actor, error)
            finally:
                actor.n_calls -= 1
                self._hand_out()
        raise InfrastructureError(f"{len(losses)} {self._name}s were lost with this request; the last: {losses[-1]}")

    def rest(self, facts: Mapping[str, Any], why: str, well: Callable[[Any], Awaitable[str]]) -> None:
        """Give an actor no calls until `well` returns an empty text for its handle."""
        for actor in self._actors:
            if actor.facts is facts and not actor.resting:
                actor.resting = why
                logger.error("%s on %s gets no requests for now: %s", self._name, facts.get("node"), why)
                self._in_background(self._rest(actor, well))

    async def aclose(self) -> None:
        """End all actors."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        actors, self._actors = self._actors, []
        await asyncio.gather(*(self._end(actor) for actor in actors))

    # --- actors -----------------------------------------------------------------------------------------------------

    async def _keep_full(self) -> None:
        """Start actors while more fit into the cluster, and report when there is none."""
        said = time.monotonic()
        while True:
            try:
                missing = await asyncio.to_thread(self._wanted) - len(self._actors)
            except KernelRLError as error:
                missing, self.why_not = 0, error.message
            except Exception as error:  # Ray raises various ones while it has no connection
                missing, self.why_not = 0, _text(error)
            for _ in range(missing):
                actor = _Actor(self._make())
                self._actors.append(actor)
                self._in_background(self._begin(actor))
            if self.capacity:
                said = time.monotonic()
            elif self._waiting and time.monotonic() - said >= min(_SAY_S, _LOOK_S):
                said = time.monotonic() + _SAY_S
                logger.warning(
                    "no %s is left; %d evaluations wait for one; ray status shows the nodes",
                    self._name,
                    len(self._waiting),
                )
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, which loses a cancellation that comes with the event.
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()

    async def _begin(self, actor: _Actor) -> None:
        try:
            facts = await self._result(actor.handle.facts.remote())
            self._accept(facts)
        except KernelRLError as error:
            # It stays in the list: another one would be refused as well.
            logger.error("%s is not used: %s", self._name, error.message)
            self._kill(actor.handle)
            if self.refused is None:
                self.refused = error
            self._any_ready.set()
        except Exception as error:
            self.why_not = _text(error)
            logger.warning("%s did not start: %s", self._name, self.why_not)
            await asyncio.sleep(_LOOK_S)
            self._remove(actor)
        else:
            actor.facts, actor.ready = facts, True
            self._any_ready.set()
            self._hand_out()

    def _lose(self, actor: _Actor, error: BaseException) -> None:
        if actor in self._actors:
            logger.warning("%s on %s was lost: %s", self._name, actor.facts.get("node"), _text(error))
            self._remove(actor)
            with contextlib.suppress(Exception):
                self._kill(actor.handle)

    def _remove(self, actor: _Actor) -> None:
        with contextlib.suppress(ValueError):
            self._actors.remove(actor)
        self._changed.set()

    async def _rest(self, actor: _Actor, well: Callable[[Any], Awaitable[str]]) -> None:
        try:
            while actor.resting:
                await asyncio.sleep(_LOOK_S)
                actor.resting = await self._result(well(actor.handle))
        except self._lost as error:
            self._lose(actor, error)
        self._hand_out()

    async def _end(self, actor: _Actor) -> None:
        with contextlib.suppress(Exception):
            if actor.ready and hasattr(actor.handle, "aclose"):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await self._result(actor.handle.aclose.remote())
        with contextlib.suppress(Exception):
            self._kill(actor.handle)

    async def _result(self, reference: Any) -> Any:
        try:
            return await reference
        except asyncio.CancelledError:
            self._cancel(reference)
            raise

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _take(self) -> _Actor:
        waiter: asyncio.Future[_Actor] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                waiter.result().n_calls -= 1
            self._hand_out()
            raise

    def _hand_out(self) -> None:
        """Give waiting calls to the actors with the fewest."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            free = [a for a in self._actors if a.ready and not a.resting and a.n_calls < self._depth]
            if not free:
                return
            actor = min(free, key=lambda actor: actor.n_calls)
            actor.n_calls += 1
            self._waiting.popleft().set_result(actor)

    def _in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
