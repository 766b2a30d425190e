"""The messages between judge and runner.

The two share one stream socket and two anonymous files made by the judge: `inputs`, which the judge writes and the
runner reads, and `outputs`, which the runner writes and the judge reads. On a GPU, two arenas of device memory replace
the files for tensors (`kernelrl_judge.protocol.device_memory`). Both directions use frames of

    4 bytes  magic          b"KRL1"
    1 byte   kind           `FrameKind`
    4 bytes  body length    little-endian, at most `MAX_BODY_BYTES`
    n bytes  body

A body is empty, an order (`orders`, `call`), another value tree (`values`), a failure (`failures`), a request to the
build service, or numbers of the native library. Orders and failures are value trees: JSON of bounded depth and size.
Nothing from a runner is unpickled, evaluated or imported. The judge itself reads the bytes of tensors from `outputs`,
and only if the described tensor has the expected shape and dtype. A decoder raises `ProtocolError` and nothing else.
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
    """The protocol does not allow a frame."""


class FrameKind(IntEnum):
    """Kinds of frame. The judge sends those up to 15, `RECORD` and `REPLAY`; a runner sends the others."""

    LOAD = 1
    """Body: `LoadOrder`. Load the candidate's module. Reply: `LOADED`."""
    CALL = 2
    """Body: `Call`. Call `forward` once and export the outputs. Reply: `RESULT`, then `FACTS` where the operators of
    torch are to be listed."""
    IMPOSE = 3
    """Body: tree of parameters and buffers that the model gets now, of those that calls change. Reply: `STAGED`."""
    CONSTRUCT = 4
    """Body: `ConstructOrder`. Construct `ModelNew`. Reply: `READY`."""
    ATTACH = 5
    """Body: `AttachOrder`, with the descriptors of two arenas of device memory, for inputs and for outputs."""
    STAGE = 6
    """Body: `StageOrder`. Prepare the calls of the next windows. Reply: `STAGED`."""
    WINDOW = 7
    """Body: `WindowOrder`. Make the calls one after the other, wait for the device, and export every output. Replies:
    on a GPU `CALLED`; then `DONE`; then `FACTS`, a tree of the runner's own clocks, which is evidence only."""
    BUILT = 8
    """Reply to `BUILD`. Body: JSON. Descriptors of the shared object and of its binder come along, if any."""
    TIME = 11
    """Body: `KernelBenchOrder`. Time calls by a method of KernelBench. Reply: `FACTS`, a list of times."""
    RESUME = 13
    """Reply to `COMPILED`: the judge has the device again."""
    STARTED = 16
    """The sandbox is closed and no candidate code has run. Body: tree of the layers that are missing."""
    LOADED = 17
    """The module is loaded and defines `ModelNew`. Body: empty; in mode `compile` a text that reports the checks."""
    READY = 18
    """`ModelNew` is constructed. Body: tree that describes how its parameters were matched."""
    RESULT = 19
    """The call is made. Body: tree of its outputs."""
    FAILED = 20
    """An exception was raised. Body: `Failure`."""
    STAGED = 21
    """The state is imposed, or the calls of the next windows are prepared."""
    DONE = 22
    """The outputs of a window are written."""
    BUILD = 23
    """The candidate requests an extension. Body: JSON of the request."""
    FACTS = 24
    """Body: tree of evidence."""
    COMPILING = 25
    """Kernels are being compiled within a call, and the device is not needed."""
    COMPILED = 26
    """Compilation has ended. Reply: `RESUME`."""
    CALLED = 27
    """The calls of a window are made and the device is idle. The export of their outputs follows."""
    RECORD = 28
    """Body: `RecordOrder`. Capture each number of calls into a graph. Reply: `RECORDED`. Then serve `REPLAY`
    (`kernelrl_judge.replay`)."""
    REPLAY = 29
    """Body: three numbers of 32 bits: action, graph, value. The native library replies with `REPLAYED`."""
    RECORDED = 30
    """Body: tree with the output of each call and the nodes of the graph, or with the reason why nothing was
    captured."""
    REPLAYED = 31
    """Body: an error code of 32 bits and five numbers of 64 bits, the times of the replay."""


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
        descriptors: maximum number of file descriptors that may come along.

    Raises:
        ProtocolError: the bytes are no frame.
        TimeoutError: the stream's timeout passed.
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
