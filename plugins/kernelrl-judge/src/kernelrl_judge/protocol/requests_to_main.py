"""Requests of a judge to its main process during an evaluation: builds, and leases of devices for a confined judge.

Each message is a JSON object on a socket that keeps messages apart. A longer content is in an anonymous file that comes
with it, in front of other descriptors. A judge waits for each reply, or withdraws its request.

    judge         {"number": N, "build": DISABLED}                        content: JSON of `kernelrl_build.inline`
                  {"number": N, "lease": DEVICE, "call": NAME, "alone": BOOL}
                  {"withdrawn": N}
    main process  {"number": N}                                           content: JSON of the reply

A confined judge may send anything. The main process reads no more than the sizes below and ends a judge that sends
something else.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["MAX_CONTENT_BYTES", "BadMessage", "closing", "content_of", "pair", "receive", "send"]

MAX_CONTENT_BYTES = 16 << 20
_MAX_MESSAGE_BYTES = 4096
_MAX_DESCRIPTORS = 4


class BadMessage(Exception):
    """The other end sent something that is no message."""


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a new channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(
    channel: socket.socket,
    message: Mapping[str, Any],
    content: bytes | None = None,
    descriptors: Sequence[int] = (),
) -> None:
    """Send a message.

    Raises:
        OSError: the other end has closed.
    """
    with contextlib.ExitStack() as stack:
        sent = list(descriptors)
        if content is not None:
            file = os.memfd_create("content", os.MFD_CLOEXEC)
            stack.callback(os.close, file)
            with open(file, "wb", closefd=False) as stream:
                stream.write(content)
            sent.insert(0, file)
        socket.send_fds(channel, [json.dumps(message).encode()], sent)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its descriptors, which the caller closes; None if the other end has closed.

    Raises:
        BadMessage: it is no message.
        BlockingIOError: there is none yet, on a channel that does not block.
    """
    try:
        body, descriptors, _, _ = socket.recv_fds(channel, _MAX_MESSAGE_BYTES, _MAX_DESCRIPTORS)
    except ConnectionError:
        return None
    if not body:
        return None
    try:
        message = json.loads(body)
        if not isinstance(message, dict):
            raise ValueError("no object")
    except (ValueError, RecursionError) as error:
        with closing(descriptors):
            raise BadMessage(str(error)) from None
    return message, descriptors


def content_of(descriptor: int) -> bytes:
    """The content of a message.

    Raises:
        BadMessage: it is no file, or too large.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_CONTENT_BYTES:
        raise BadMessage("the content is no file, or too large")
    parts: list[bytes] = []
    size = 0
    # A file can become shorter meanwhile.
    while size < found.st_size and (part := os.pread(descriptor, found.st_size - size, size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


@contextlib.contextmanager
def closing(descriptors: Sequence[int]) -> Iterator[None]:
    """Close descriptors at the end."""
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
