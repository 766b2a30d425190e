"""The main process as its judge sees it: it builds extensions, and leases devices for a confined judge."""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
from typing import Any

from kernelrl_build.lexing import Unreadable
from kernelrl_build.service import BadBuildRequest, BuildCrashed, BuildReply, BuildUnavailable
from kernelrl_core.api.evaluators import CompiledKernel, DeviceLease, ExtensionBuild, from_json
from kernelrl_judge.peer.cancellation import CancelWatch
from kernelrl_judge.protocol import requests_to_main as channels

__all__ = ["MainProcess"]

_FAILURES = {kind.__name__: kind for kind in (BadBuildRequest, BuildCrashed, BuildUnavailable, Unreadable)}


class MainProcess:
    """Requests to the main process, one at a time.

    Args:
        channel: its end of `requests_to_main.pair`.
        cancel_watch: noticed while a reply is waited for.
    """

    def __init__(self, channel: socket.socket, cancel_watch: CancelWatch) -> None:
        self._channel = channel
        self._cancel_watch = cancel_watch
        self._numbers = itertools.count()

    def build(self, requested: bytes, *, disabled: bool) -> BuildReply:
        """Build an extension for the candidate of the present evaluation; see `BuildService.build`.

        Args:
            requested: body of a `BUILD` frame.
            disabled: build kernels that do nothing.

        Raises:
            Cancelled: nobody waits for the evaluation any more.
            What `BuildService.build` raises.
        """
        reply, descriptors = self._reply({"build": disabled}, requested)
        if "raised" in reply:
            raise _FAILURES[reply["raised"]](*reply["arguments"])
        return BuildReply(
            body=reply["body"].encode("utf-8", "surrogatepass"),
            descriptors=descriptors,
            build=from_json(ExtensionBuild, reply["build"]),
            kernels=tuple(from_json(CompiledKernel, kernel) for kernel in reply["kernels"]),
            library_symbols=tuple(reply["library_symbols"]),
        )

    def leases(self, device: str) -> DeviceLease:
        """The leases of a device, which the main process takes: a confined judge sees no lock files."""
        return _LeasesOfMain(device, self)

    def lease_call(self, device: str, name: str, *, alone: bool = False) -> bool:
        """Call a method of a `DeviceLease` in the main process; returns its result.

        Raises:
            Cancelled: nobody waits for the evaluation any more.
        """
        reply, _ = self._reply({"lease": device, "call": name, "alone": alone})
        return bool(reply["result"])

    def _reply(self, message: dict[str, Any], content: bytes | None = None) -> tuple[dict[str, Any], list[int]]:
        """The reply to a request, and the descriptors that came with it.

        Raises:
            Cancelled: see `build`.
            RuntimeError: the main process has closed the channel.
        """
        number = next(self._numbers)
        channels.send(self._channel, {"number": number, **message}, content)
        try:
            while True:
                watched: list[socket.socket | int] = [self._channel, self._cancel_watch.descriptor]
                readable, _, _ = select.select(watched, [], [])
                if self._channel not in readable:
                    self._cancel_watch.check()
                    continue
                received = channels.receive(self._channel)
                if received is None:
                    raise RuntimeError("the main process has closed the channel")
                answered, descriptors = received
                if answered["number"] == number:
                    with channels.closing(descriptors[:1]):
                        return json.loads(channels.content_of(descriptors[0])), descriptors[1:]
                # The reply to a request that was withdrawn too late.
                with channels.closing(descriptors):
                    pass
        except BaseException:
            with contextlib.suppress(OSError):
                channels.send(self._channel, {"withdrawn": number})
            raise


class _LeasesOfMain(DeviceLease):
    """Leases that the main process takes and gives back for this judge."""

    def __init__(self, device: str, main_process: MainProcess) -> None:
        self._device_name = device
        self._main_process = main_process

    def enter(self, *, alone: bool) -> None:
        self._main_process.lease_call(self._device_name, "enter", alone=alone)

    def leave(self) -> None:
        self._main_process.lease_call(self._device_name, "leave")

    def say_slow(self) -> None:
        self._main_process.lease_call(self._device_name, "say_slow")

    def timed_section_waits(self) -> bool:
        return self._main_process.lease_call(self._device_name, "timed_section_waits")
