"""Serves the requests of a judge (`kernelrl_judge.protocol.requests_to_main`) in the main process. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernelrl_core.api.evaluators import DeviceLease, EvaluationRequest, to_json
from kernelrl_judge.client.builds import Builds
from kernelrl_judge.protocol import requests_to_main as channels

__all__ = ["JudgeRequests"]

logger = logging.getLogger(__name__)

_DEVICE = re.compile(r"cpu|gpu-[\w.-]{1,100}")
_MAX_DEVICES = 2
_LEASE_CALLS = ("enter", "leave", "say_slow", "timed_section_waits")


class _Withdrawn(Exception):
    """The judge no longer waits for the reply."""


class JudgeRequests:
    """Requests of one judge process, served one at a time in a thread.

    Args:
        builds: of this machine.
        gpu: of the judge, as `CUDA_VISIBLE_DEVICES` names it; empty: none.
    """

    def __init__(self, builds: Builds, gpu: str) -> None:
        self._builds, self._gpu = builds, gpu
        self._ours, self.theirs = channels.pair()
        self._ours.setblocking(False)
        self.evaluating: EvaluationRequest | None = None
        """The request that the judge evaluates now."""
        self._waiting: int | None = None
        """Number of the request whose reply the judge waits for."""
        self._leases: dict[str, DeviceLease] = {}
        self._worker = ThreadPoolExecutor(1, "kernelrl-judge-requests")
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours, self._take)

    def close(self) -> None:
        """Withdraw the present request and give back all leases, when the judge has ended."""
        if self._ours.fileno() < 0:
            return
        self._waiting = None
        self._loop.remove_reader(self._ours)
        self._ours.close()
        self.theirs.close()
        self._worker.submit(self._leave_all)
        self._worker.shutdown(wait=False)

    def _take(self) -> None:
        """Read one message of the judge."""
        try:
            received = channels.receive(self._ours)
            if received is not None:
                self._begin(*received)
        except BlockingIOError:
            return
        except channels.BadMessage as error:
            logger.warning("a judge sent a malformed request: %s", error)
            received = None
        if received is None:
            # A judge that waits for a reply notices the end of the channel.
            self.close()

    def _begin(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """
        Raises:
            BadMessage: the message is no request.
        """
        with channels.closing(descriptors):
            if "withdrawn" in message:
                if message["withdrawn"] == self._waiting:
                    self._waiting = None
                return
            number = message.get("number")
            if type(number) is not int:
                raise channels.BadMessage("a request without a number")
            content = channels.content_of(descriptors[0]) if descriptors else b""
        self._waiting = number
        task = asyncio.create_task(self._answer(number, self._work(message, content, number)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _work(
        self, message: dict[str, Any], content: bytes, number: int
    ) -> Callable[[], tuple[dict[str, Any], list[int]]]:
        """The function that makes the reply to a request.

        Raises:
            BadMessage: the message is no request.
        """

        def check() -> None:
            if self._waiting != number:
                raise _Withdrawn

        if "build" in message:
            request = self.evaluating
            if request is None:
                raise channels.BadMessage("a build without a candidate")
            disabled = message["build"] is True
            return lambda: self._built(request, content, check, disabled=disabled)
        device, call = message.get("lease"), message.get("call")
        if not isinstance(device, str) or not _DEVICE.fullmatch(device) or call not in _LEASE_CALLS:
            raise channels.BadMessage("neither a build nor a lease")
        if len(self._leases.keys() | {device}) > _MAX_DEVICES:
            raise channels.BadMessage("leases of too many devices")
        arguments = {"alone": message.get("alone") is True} if call == "enter" else {}
        return lambda: (self._lease_call(device, call, arguments, check), [])

    async def _answer(self, number: int, work: Callable[[], tuple[dict[str, Any], list[int]]]) -> None:
        try:
            reply, descriptors = await self._loop.run_in_executor(self._worker, work)
        except _Withdrawn:
            return
        except Exception:
            logger.exception("a request of a judge failed")
            self.close()
            return
        with channels.closing(descriptors), contextlib.suppress(OSError):
            if self._waiting == number:
                channels.send(self._ours, {"number": number}, json.dumps(reply).encode(), descriptors)

    def _built(
        self, request: EvaluationRequest, requested: bytes, check: Callable[[], None], *, disabled: bool
    ) -> tuple[dict[str, Any], list[int]]:
        from kernelrl_build.lexing import Unreadable
        from kernelrl_build.service import BadBuildRequest, BuildCrashed, BuildUnavailable

        try:
            reply = self._builds.serve(request, requested, self._gpu, check, disabled=disabled)
        except (BadBuildRequest, BuildCrashed, BuildUnavailable, Unreadable) as error:
            return {"raised": type(error).__name__, "arguments": [str(part) for part in error.args]}, []
        found = {
            "body": reply.body.decode("utf-8", "surrogatepass"),
            "build": to_json(reply.build),
            "kernels": [to_json(kernel) for kernel in reply.kernels],
            "library_symbols": list(reply.library_symbols),
        }
        return found, reply.descriptors

    def _lease_call(
        self, device: str, name: str, arguments: dict[str, bool], check: Callable[[], None]
    ) -> dict[str, Any]:
        if device not in self._leases:
            self._leases[device] = DeviceLease(device)
        leases = self._leases[device]
        leases.check = check
        return {"result": bool(getattr(leases, name)(**arguments))}

    def _leave_all(self) -> None:
        for leases in self._leases.values():
            leases.close()
        self._leases.clear()
