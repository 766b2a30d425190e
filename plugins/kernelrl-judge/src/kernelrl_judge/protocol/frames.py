"""The messages between judge and runner.

The two share one stream socket and two anonymous files made by the judge: `inputs`, which the judge writes and the
runner reads, and `outputs`, which the runner writes and the judge reads. On a GPU, two arenas of device memory take
the place of the files for tensors (`kernelrl_judge.protocol.device_memory`). Both directions use frames of

    4 bytes  magic          b"KRL1"
    1 byte   kind           `FrameKind`
    4 bytes  body length    little-endian, at most `MAX_BODY_BYTES`
    n bytes  body

A body is empty, a value tree (`values`), which is JSON of bounded depth and size, or a failure (`failures`), which is
one too. Nothing from a runner is unpickled, evaluated or imported;
tensor bytes are read by the judge from `outputs`, and only where the described tensor is the expected one in shape and
dtype. A decoder raises `ProtocolError` and nothing else.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from enum import IntEnum

import attrs

__all__ = ["HEADER", "MAGIC", "MAX_BODY_BYTES", "Frame", "FrameKind", "ProtocolError", "receive", "send"]

MAX_BODY_BYTES = 1 << 20
_MAX_DESCRIPTORS = 4
HEADER = struct.Struct("<4sBI")
MAGIC = b"KRL1"


class ProtocolError(Exception):
    """A frame is not what the protocol allows."""


class FrameKind(IntEnum):
    """Kinds of frame. The judge sends those up to 15, `RECORD` and `REPLAY`; a runner sends the others."""

    LOAD = 1
    """Body: tree with the place of the source and the backend's options."""
    CALL = 2
    """Body: tree of the inputs; call `forward` once and export the outputs. Where operators of torch are to be listed,
    `FACTS` follow `RESULT`."""
    IMPOSE = 3
    """Body: tree with parameters and buffers to have from now on, of those that calls change; answer `STAGED`."""
    CONSTRUCT = 4
    """Body: tree with constructor arguments, state, dtype and the seed of the constructor."""
    ATTACH = 5
    """Body: tree with the sizes of two arenas of device memory, inputs and outputs; their descriptors come along."""
    STAGE = 6
    """Body: tree with the inputs of each call of the next windows, and where the outputs of each call belong. Copy the
    inputs; answer `STAGED`."""
    WINDOW = 7
    """Body: tree with the number of calls; make them one after the other, wait for the device, which on a GPU is
    reported with `CALLED`, export every output and answer `DONE`, then `FACTS`: a tree of the runner's own clocks,
    telemetry, not believed."""
    BUILT = 8
    """Answer to `BUILD`. Body: JSON; descriptors of the shared object and of its binder come along, if any."""
    TIME = 11
    """Body: tree with one set of inputs, a timing method of KernelBench and the number of trials; answer `FACTS`."""
    RESUME = 13
    """Answer to `COMPILED`: the device is the judge's again."""
    STARTED = 16
    """The sandbox is closed and no candidate code has run. Body: tree of the layers that are missing."""
    LOADED = 17
    """The module is loaded and defines `ModelNew`. Body: empty, or in mode `compile` a text, what was checked."""
    READY = 18
    """`ModelNew` is constructed. Body: a tree, how its parameters were matched."""
    RESULT = 19
    """A call is done. Body: the tree of its outputs."""
    FAILED = 20
    """Something raised. Body: a failure."""
    STAGED = 21
    DONE = 22
    """What was ordered is done: the outputs of a window are written."""
    BUILD = 23
    """The candidate wants an extension built. Body: JSON of what it asks for."""
    FACTS = 24
    """Body: tree of telemetry."""
    COMPILING = 25
    """Kernels are being compiled within a call, and the device is not needed."""
    COMPILED = 26
    """Compiling is over; go on at `RESUME`."""
    CALLED = 27
    """The calls of a window are made and the device is idle; what is left is to export their outputs."""
    RECORD = 28
    """Body: tree with input slots, inputs of a warm-up, places of outputs and of state, and numbers of calls; capture
    each number of calls into a graph. Answer `RECORDED`, then serve `REPLAY` (`kernelrl_judge.replay`)."""
    REPLAY = 29
    """Body: three numbers of 32 bits: action, graph, value. The native library answers `REPLAYED`."""
    RECORDED = 30
    """Body: tree with what each call returned and the nodes of its graph, or why nothing was captured."""
    REPLAYED = 31
    """Body: an error code of 32 bits and five numbers of 64 bits, the times of the pass."""


@attrs.frozen
class Frame:
    """One message."""

    kind: FrameKind
    body: bytes
    descriptors: tuple[int, ...] = ()
    """File descriptors that came along; the receiver closes them."""


def send(stream: socket.socket, kind: FrameKind, body: bytes = b"", descriptors: Sequence[int] = ()) -> None:
    """Send one frame, with copies of file descriptors of this process.

    Raises:
        ValueError: the body is too large.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a message of more than {MAX_BODY_BYTES} bytes")
    data = memoryview(HEADER.pack(MAGIC, kind, len(body)) + body)
    if descriptors:
        data = data[socket.send_fds(stream, [data], descriptors) :]
    stream.sendall(data)


def receive(stream: socket.socket, descriptors: int = 0) -> Frame | None:
    """The next frame, or None when the other side has closed the stream.

    Args:
        descriptors: most file descriptors that may come along.

    Raises:
        ProtocolError: the bytes are no frame.
        TimeoutError: the stream's time-out passed.
    """
    handles: list[int] = []
    header = _exactly(stream, HEADER.size, handles if descriptors else None)
    if header is None:
        return None
    magic, kind, length = HEADER.unpack(header)
    if magic != MAGIC or length > MAX_BODY_BYTES or kind not in FrameKind.__members__.values():
        raise ProtocolError("not a frame of this protocol")
    body = _exactly(stream, length) if length else b""
    if body is None:
        raise ProtocolError("the stream ended inside a frame")
    return Frame(FrameKind(kind), body, tuple(handles))


def _exactly(stream: socket.socket, count: int, handles: list[int] | None = None) -> bytes | None:
    parts: list[bytes] = []
    missing = count
    while missing:
        try:
            if handles is None:
                part = stream.recv(missing)
            else:
                part, received, _, _ = socket.recv_fds(stream, missing, _MAX_DESCRIPTORS)
                handles += received
        except ConnectionError:
            part = b""
        if not part:
            if parts:
                raise ProtocolError("the stream ended inside a frame")
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
