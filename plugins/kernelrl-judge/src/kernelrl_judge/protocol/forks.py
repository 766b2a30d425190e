"""Processes that fork others on request: the nursery and its zygotes. A request is a message with descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

__all__ = ["MAX_REASON_BYTES", "READY", "NotForked", "name_process", "request_fork", "serve"]

READY = b"ready"
"""First message of a zygote."""
MAX_REASON_BYTES = 500
"""Maximum length of the message that a zygote sends instead of `READY` if it cannot import its backend."""
_MAX_REQUEST_BYTES = 1 << 16
_MAX_DESCRIPTORS = 5
_REFUSED = b"not forked: "
_ARGUMENTS_AT = 45
"""Index in `/proc/PID/stat`, counted after the name, of the begin and end addresses of the process's arguments."""


class NotForked(Exception):
    """The machine cannot create a process. No candidate is the cause."""


def serve(
    channel: socket.socket, begin: Callable[[bytes, list[int]], NoReturn], between: Callable[[], None] = lambda: None
) -> None:
    """Fork a process for each request, until the other end closes.

    Args:
        begin: called in the new process with the request and its descriptors.
        between: called in this process before it waits for each request.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        between()
        try:
            message, descriptors, _, _ = socket.recv_fds(channel, _MAX_REQUEST_BYTES, _MAX_DESCRIPTORS)
        except ConnectionError:
            return
        if not message:
            return
        held = list(descriptors)
        try:
            child = os.fork()
            if child == 0:
                channel.close()
                _begin(begin, message, descriptors)
            held.append(os.pidfd_open(child))
            reply, handles = str(child).encode(), held[-1:]
        except OSError as error:
            # Too many processes, or too little memory. A later request may succeed.
            reply, handles = _REFUSED + str(error).encode(), []
        with contextlib.suppress(ConnectionError):
            socket.send_fds(channel, [reply], handles)
        for descriptor in held:
            os.close(descriptor)


def _begin(begin: Callable[[bytes, list[int]], NoReturn], message: bytes, descriptors: list[int]) -> NoReturn:
    """Call `begin` in a new process, which must never return to the loop of `serve` that it was forked from."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        begin(message, descriptors)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def request_fork(channel: socket.socket, request: bytes, descriptors: Sequence[int]) -> tuple[int, int]:
    """Request a new process; returns its process id and a process descriptor for it.

    Raises:
        OSError: the other end has closed, or does not reply.
        NotForked: the machine cannot create a process.
    """
    socket.send_fds(channel, [request], descriptors)
    message, handles, _, _ = socket.recv_fds(channel, 256, 1)
    if message.startswith(_REFUSED):
        raise NotForked(message.removeprefix(_REFUSED).decode())
    if not message:
        raise ConnectionResetError("the other end has closed")
    return int(message), handles[0]


def name_process(name: str) -> None:
    """Replace the arguments that this process inherited when it was forked. `ps` shows them as its name."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            # The program's name, in parentheses, may contain spaces and parentheses.
            fields = file.read().rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS_AT : _ARGUMENTS_AT + 2])
        if 0 < begin < end:
            ctypes.memset(begin, 0, end - begin)
            ctypes.memmove(begin, name.encode(), min(len(name), end - begin - 1))
