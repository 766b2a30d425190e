"""The evaluator `route`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from kernelrl_core.api.components import registry
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Task,
    TaskAudit,
)
from kernelrl_plugin_route.config import RouteConfig

__all__ = ["RouteEvaluator"]


@attrs.define(eq=False)
class _Member:
    """An evaluator and its requests."""

    name: str
    evaluator: Evaluator
    n_busy: int = 0

    @property
    def free(self) -> bool:
        return self.n_busy < self.evaluator.capacity


class RouteEvaluator(Evaluator):
    """Evaluates candidates by its members.

    Without `timing`, the first member with free capacity gets a candidate. With it, the other member evaluates the
    candidate without timing, and the member that times evaluates it again if it is correct.
    """

    def __init__(self, config: RouteConfig) -> None:
        made = {name: registry().make("evaluators", use) for name, use in config.uses.items()}
        self._members = [_Member(name, evaluator) for name, evaluator in made.items()]
        timing = [member for member in self._members if member.name == config.timing]
        self._timing = timing[0] if timing else None
        self._first = [member for member in self._members if member is not self._timing]
        self._waiting: deque[tuple[asyncio.Future[_Member], Sequence[_Member]]] = deque()

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """The capacity of all members; changes with theirs."""
        return sum(member.evaluator.capacity for member in self._members)

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """See `Evaluator.evaluate`. `provenance["member"]` is the name of the member."""
        if self._timing is None:
            return await self._by(self._first, request)
        untimed = attrs.evolve(request, settings=attrs.evolve(request.settings, timing=False))
        found = await self._by(self._first, untimed)
        if not found.correct or not request.settings.timing:
            return found
        timed = await self._by([self._timing], request)
        before = {f"{name}_before": seconds for name, seconds in found.seconds.items() if name != "gpu"}
        gpu = {"gpu": found.seconds["gpu"] + timed.seconds.get("gpu", 0.0)} if "gpu" in found.seconds else {}
        return attrs.evolve(timed, seconds={**timed.seconds, **before, **gpu})

    async def start(self) -> None:
        """Start all members; see `Evaluator.start`."""
        for member in self._members:
            await member.evaluator.start()

    async def expect(self, backend: str) -> None:
        """See `Evaluator.expect`."""
        for member in self._members:
            await member.evaluator.expect(backend)

    def gpu_model(self) -> str:
        """Model of the member that times; without one, those of all members. See `Evaluator.gpu_model`."""
        members = self._members if self._timing is None else [self._timing]
        models = sorted({member.evaluator.gpu_model() for member in members})
        return ", ".join(model or "no GPU" for model in models) if any(models) else ""

    def identity(self) -> str:
        """Identities of all members."""
        found = [f"{member.name}={member.evaluator.identity()}" for member in self._members]
        return f"{' '.join(found)} timing={self._timing.name if self._timing else ''}"

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        members = self._members if self._timing is None else [self._timing]
        return next(filter(None, (member.evaluator.why_untimed(backend, options) for member in members)), "")

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Audit a task by the first member; see `Evaluator.audit`."""
        return await self._members[0].evaluator.audit(task, settings, timeout_s)

    async def aclose(self) -> None:
        """Close all members."""
        await asyncio.gather(*(member.evaluator.aclose() for member in self._members))

    async def _by(self, members: Sequence[_Member], request: EvaluationRequest) -> Evaluation:
        async with self._slot(members) as member:
            found = await member.evaluator.evaluate(request)
        return attrs.evolve(found, provenance={**found.provenance, "member": member.name})

    @asynccontextmanager
    async def _slot(self, members: Sequence[_Member]) -> AsyncIterator[_Member]:
        """The first of the members with free capacity, for one request; requests wait in their order."""
        waiter: asyncio.Future[_Member] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiter, members))
        self._hand_out()
        try:
            member = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._give_back(waiter.result())
            raise
        try:
            yield member
        finally:
            self._give_back(member)

    def _give_back(self, member: _Member) -> None:
        member.n_busy -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        for _ in range(len(self._waiting)):
            waiter, members = self._waiting.popleft()
            free = next((member for member in members if member.free), None)
            if free is None:
                self._waiting.append((waiter, members))
            elif not waiter.done():
                free.n_busy += 1
                waiter.set_result(free)
