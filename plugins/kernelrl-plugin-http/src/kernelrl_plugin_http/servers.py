"""Several servers as one: each request is sent to the least loaded one, and to another one if that is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import tenacity

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.components import registry, require_same_versions, worker_versions
from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite
from kernelrl_plugin_http.connection import Connection, Unavailable

__all__ = ["Servers"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_REFRESH_S = 15.0
"""Longest time after which the capacity of a server is read again."""
_PERIOD, _SHARE = 1 / 3, 2 / 3
"""Parts of `timeout_s`: after the first, the capacity is read again; within the second, it must come. So a server that
no longer responds is found within `timeout_s`, however long ago its requests were sent."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 20.0
"""Random pauses between the tries to reach a lost server."""
_POLL_S = 0.25
_AVOID_S = 30.0
"""Time for which other servers are preferred to one that failed."""
_COMPARED = ("torch", "triton")
"""Distributions on which results depend and that only servers have."""


@attrs.define(eq=False)
class _Server:
    """A server and its state."""

    connection: Connection
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    """Last response of `/v1/capacity`."""
    is_up: bool = False
    n_busy: int = 0
    rests_until_s: float = 0.0
    """Until then its queue is full."""
    avoided_until_s: float = 0.0
    lost: asyncio.Event = attrs.field(factory=asyncio.Event)
    silent: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set while it does not respond: requests that wait there are sent to another one."""

    @property
    def url(self) -> str:
        return self.connection.url

    @property
    def capacity(self) -> int:
        return max(1, int(self.facts.get("capacity", 1)))


class Servers:
    """The servers of an evaluator or of another client.

    Args:
        urls: addresses, at least one.
        token: sent with each request; empty: none.
        timeout_s: seconds without a response after which a server is lost.
        patience_s: seconds without any server after which a request fails.
        has_own_parts: whether parts of a result are made here, so that the versions of both sides must be equal.
    """

    def __init__(
        self, urls: Sequence[str], token: str, timeout_s: float, patience_s: float, *, has_own_parts: bool = True
    ) -> None:
        self._servers = [_Server(Connection(url, token, timeout_s)) for url in urls]
        self._patience_s, self._has_own_parts = patience_s, has_own_parts
        self._refresh_s = min(_REFRESH_S, _PERIOD * timeout_s)
        self._starting = asyncio.Lock()
        self._watchers: list[asyncio.Task[None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._last_seen_s = 0.0
        self.facts: Mapping[str, Any] = {}
        """Of the first server that was reached; the evaluators of all others are equal."""

    @property
    def capacity(self) -> int:
        """Requests that all reachable servers work on concurrently; at least 1."""
        return max(1, sum(server.capacity for server in self._servers if server.is_up))

    async def start(self) -> None:
        """Reach the servers; does nothing if that was done.

        Raises:
            MissingPrerequisite: none can be reached, or one has other versions or another evaluator, or refuses the
                token.
        """
        async with self._starting:
            if not self._watchers:
                await self._start()

    async def _start(self) -> None:
        found = await asyncio.gather(*map(_capacity, self._servers), return_exceptions=True)
        absent = []
        for server, facts in zip(self._servers, found, strict=True):
            if isinstance(facts, Unavailable):
                absent.append(f"{server.url}: {facts.message}")
            elif isinstance(facts, BaseException):
                raise facts
            else:
                self._accept(server, facts)
        if not self.facts:
            raise MissingPrerequisite(
                f"no server of kernelrl serve responds: {'; '.join(absent)}",
                fix="start it with kernelrl serve, or correct the address",
                see="service",
            )
        for line in absent:
            logger.warning("server %s; the others serve meanwhile", line)
        self._watchers = [asyncio.create_task(self._watch(server)) for server in self._servers]

    async def run(self, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        """The result of requests to one server. If it is lost meanwhile, they are sent to another one.

        Raises:
            MissingPrerequisite: no server was reachable for `patience_s`.
            KernelRLError: as `work`.
        """
        while True:
            server = await self._acquire()
            try:
                result = await _while_it_responds(server, work(server.connection))
            except Unavailable as failure:
                self._failed(server, failure)
            except InfrastructureError:
                server.avoided_until_s = _now_s() + _AVOID_S
                raise
            else:
                self._last_seen_s = _now_s()
                return result
            finally:
                server.n_busy -= 1
                self._wake()

    @property
    def without_inline_tasks(self) -> tuple[str, ...]:
        """Addresses of the reachable servers that accept no sources of tasks from this client."""
        return tuple(one.url for one in self._servers if one.is_up and not one.facts.get("inline_tasks"))

    async def aclose(self) -> None:
        """Close all connections."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        for server in self._servers:
            await server.connection.aclose()

    async def _acquire(self) -> _Server:
        """The least loaded server; waits for one."""
        while (server := self._best()) is None:
            self._require_patience()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            # No event reports that a full queue accepts requests again.
            await asyncio.wait({waiter}, timeout=_POLL_S)
        server.n_busy += 1
        return server

    def _best(self) -> _Server | None:
        now_s = _now_s()
        free = [
            server
            for server in self._servers
            if server.is_up and server.n_busy < server.capacity and server.rests_until_s <= now_s
        ]
        return min(free, key=lambda one: (one.avoided_until_s > now_s, one.n_busy / one.capacity), default=None)

    def _require_patience(self) -> None:
        if any(server.is_up for server in self._servers):
            self._last_seen_s = _now_s()
        elif _now_s() - self._last_seen_s > self._patience_s:
            urls = ", ".join(server.url for server in self._servers)
            raise MissingPrerequisite(
                f"no server of kernelrl serve has responded for {self._patience_s:g} s: {urls}",
                fix="start it again, then continue (kernelrl resume)",
                see="service",
            )

    def _failed(self, server: _Server, failure: Unavailable) -> None:
        if failure.wait_s is not None:
            server.rests_until_s = _now_s() + failure.wait_s
            return
        server.avoided_until_s = _now_s() + _AVOID_S
        if failure.is_silent:
            server.silent.set()
        if server.is_up:
            logger.warning("server %s is lost: %s", server.url, failure.message)
            server.is_up = False
            server.lost.set()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _watch(self, server: _Server) -> None:
        """Read the capacity of a server again and again; if it is lost, until it responds."""
        while True:
            if server.is_up:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(server.lost.wait(), self._refresh_s)
            server.lost.clear()
            async for attempt in tenacity.AsyncRetrying(
                wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
                retry=tenacity.retry_if_exception_type((Unavailable, KernelRLError)),
            ):
                with attempt:
                    await self._refresh(server)

    async def _refresh(self, server: _Server) -> None:
        was_up = server.is_up
        try:
            self._accept(server, await _capacity(server))
        except (Unavailable, KernelRLError) as failure:
            if was_up:
                lost = failure if isinstance(failure, Unavailable) else Unavailable(failure.message)
                self._failed(server, lost)
            raise
        if not was_up:
            logger.warning("server %s is back", server.url)
        self._wake()

    def _accept(self, server: _Server, facts: Mapping[str, Any]) -> None:
        """Use a server, or one that was restarted.

        Raises:
            MissingPrerequisite: its versions or its evaluator differ.
        """
        where = f"server {server.url}"
        fix = "install the same versions there: pip install -r requirements.txt in the same clone"
        there = facts["versions"]
        if facts["api_version"] != API_VERSION:
            there_and_here = f"API version {facts['api_version']}, here {API_VERSION}"
            raise MissingPrerequisite(f"{where} has {there_and_here}", fix=fix, see="versions")
        if self._has_own_parts:
            require_same_versions(worker_versions(registry()), there, where, fix=fix)
        if self.facts:
            require_same_versions(self.facts["versions"], there, where, distributions=_COMPARED, fix=fix)
            for key, noun in (("gpu_model", "GPU"), ("identity", "evaluator")):
                known = self.facts[key]
                if facts[key] != known:
                    raise MissingPrerequisite(
                        f"{where} has {noun} {facts[key] or 'none'!r}, another server has {known or 'none'!r}",
                        fix="use servers with equal evaluators, or evaluator route with one member for each kind",
                        see="service",
                    )
        else:
            self.facts = facts
        server.facts, server.is_up = facts, True
        server.silent.clear()
        self._last_seen_s = _now_s()


async def _while_it_responds(server: _Server, work: Coroutine[Any, Any, T]) -> T:
    """The result of work.

    Raises:
        Unavailable: another request found that the server does not respond. The work is cancelled.
    """
    task, silent = asyncio.ensure_future(work), asyncio.ensure_future(server.silent.wait())
    try:
        await asyncio.wait({task, silent}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unavailable("it does not respond")
    finally:
        silent.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _capacity(server: _Server) -> dict[str, Any]:
    facts = await server.connection.get("/v1/capacity", share=_SHARE)
    if not {"api_version", "versions", "identity", "gpu_model", "capacity", "backends"} <= facts.keys():
        raise Unavailable("the response is not from kernelrl serve; check the address")
    return facts


def _now_s() -> float:
    return asyncio.get_running_loop().time()
