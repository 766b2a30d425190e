"""What judge and runner say to each other, and what a backend's runner half must offer.

The two share one stream socket and two anonymous files made by the judge: `inputs`, which the judge writes and the
runner reads, and `outputs`, which the runner writes and the judge reads. On a GPU, two arenas of device memory take
the place of the files for tensors (`kernelrl_judge.device_memory`). Both directions use frames of

    4 bytes  magic          b"KRL1"
    1 byte   kind           `FrameKind`
    4 bytes  body length    little-endian, at most `MAX_BODY_BYTES`
    n bytes  body

What a runner says is signed as well, before its body (`kernelrl_judge.speaking`).

A body is empty, a value tree (`encode_tree`) in a small tagged binary form of bounded depth and size, or a failure
(`encode_failure`), which is one too. Nothing from a runner is unpickled, evaluated or imported; tensor bytes are read
by the judge from `outputs`, and only where the described tensor is the expected one in shape and dtype. A decoder
raises `ProtocolError` and nothing else.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

import attrs

__all__ = [
    "DTYPES",
    "HEADER",
    "MAGIC",
    "MAX_BODY_BYTES",
    "BackendRunner",
    "Failure",
    "Frame",
    "FrameKind",
    "ProtocolError",
    "Stage",
    "TensorLeaf",
    "decode_failure",
    "decode_tree",
    "encode_failure",
    "encode_tree",
    "receive",
    "send",
]

MAX_BODY_BYTES = 1 << 20
_MAX_DEPTH = 16
_MAX_NODES = 4096
_MAX_TEXT_BYTES = 48 * 1024
_MAX_DESCRIPTORS = 4
HEADER = struct.Struct("<4sBI")
MAGIC = b"KRL1"

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
"""Dtypes that can travel; their place is their code."""


class ProtocolError(Exception):
    """A frame is not what the protocol allows."""


class FrameKind(IntEnum):
    """Kinds of frame. The judge sends those up to 15, a runner the others."""

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
    """Body: tree with the number of calls, and what to look at, if anything; make them one after the other, wait for
    the device, export every output and answer `DONE`, then `FACTS`: a tree of what the runner's own clocks say,
    telemetry, not believed. Where there is something to look at, answer `STAGED` first and wait for a second `WINDOW`;
    other `FACTS` follow."""
    BUILT = 8
    """Answer to `BUILD`. Body: JSON; descriptors of the shared object and of its binder come along, if any."""
    PING = 9
    """Answer `DONE` at once."""
    PROFILE = 10
    """Body: tree with inputs; call `forward` and answer `FACTS`, the kernels of the device."""
    TIME = 11
    """Body: tree with one set of inputs, a timing method of KernelBench and the number of trials; answer `FACTS`."""
    WAKE = 12
    """Bring this process to the front of the device and answer `DONE`: changing the process costs the device time."""
    RESUME = 13
    """Answer to `COMPILED`: the device is the judge's again."""
    RETURN = 14
    """Body: tree with numbers of calls of the window before, whose inputs are wanted, or of single calls before this
    order, whose outputs are; export them, as they are now, as a `RESULT`."""
    LATER = 15
    """Body: tree with inputs, and what is otherwise in this call, which is one of the last; answer `RESULT`."""
    STARTED = 16
    """The sandbox is closed and no candidate code has run. Body: a key, and a tree of the layers that are missing."""
    LOADED = 17
    """The module is loaded and defines `ModelNew`. Body: empty, or in mode `compile` a text, what was checked."""
    READY = 18
    """`ModelNew` is constructed. Body: a tree, how its parameters were matched."""
    RESULT = 19
    """A call is done. Body: the tree of its outputs."""
    FAILED = 20
    """Something raised. Body: `Failure`."""
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


class Stage(IntEnum):
    """Where a failure happened."""

    LOAD = 1
    CONSTRUCT = 2
    FORWARD = 3
    EXPORT = 4


@attrs.frozen
class Frame:
    """One message."""

    kind: FrameKind
    body: bytes
    descriptors: tuple[int, ...] = ()
    """File descriptors that came along; the receiver closes them."""


@attrs.frozen
class Failure:
    """What a runner says of an exception: evidence against its own candidate, and no more."""

    stage: Stage
    kind: str
    """`compile`, `memory` or `error`, as the backend's runner half classified it."""
    name: str
    """Name of the exception's class."""
    text: str
    """Traceback and message, shortened in the middle."""


@attrs.frozen
class TensorLeaf:
    """A tensor in a value tree."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    """`cpu`, `cuda`, or another device type."""
    offset: int
    """Byte offset of its contents in the shared file; -1 when they did not fit."""
    strides: tuple[int, ...] | None = None
    """In elements; None where it is contiguous, as outputs are."""

    @property
    def span(self) -> int:
        """Elements from its first to its last."""
        if 0 in self.shape:
            return 0
        if self.strides is None:
            return math.prod(self.shape)
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


# --- frames ---------------------------------------------------------------------------------------------------------


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


# --- failures -------------------------------------------------------------------------------------------------------


def encode_failure(failure: Failure) -> bytes:
    """Body of a `FAILED` frame."""
    return bytes([failure.stage]) + encode_tree([failure.kind, failure.name, failure.text])


def decode_failure(body: bytes) -> Failure:
    """The failure in the body of a `FAILED` frame.

    Raises:
        ProtocolError: it is none.
    """
    if not body or body[0] not in Stage.__members__.values():
        raise ProtocolError("a failure without a stage")
    tree = decode_tree(body[1:])
    if not isinstance(tree, list) or len(tree) != 3 or not all(isinstance(item, str) for item in tree):
        raise ProtocolError("a failure is three texts")
    return Failure(Stage(body[0]), *tree)


# --- value trees ----------------------------------------------------------------------------------------------------


def encode_tree(value: Any) -> bytes:
    """Tagged binary form of None, bool, int, float, str, list, tuple, dict with text keys, and `TensorLeaf`.

    Raises:
        TypeError: another type, an integer beyond 64 bits, or a tree too deep or too large.
    """
    out = bytearray()
    _encode(value, out, _MAX_DEPTH)
    if len(out) > MAX_BODY_BYTES:
        raise TypeError("the value is too large")
    return bytes(out)


def _encode(value: Any, out: bytearray, depth: int) -> None:
    if depth < 0:
        raise TypeError("the value is nested too deeply")
    # Exact types: a subclass could carry behaviour, and behaviour does not travel.
    kind = type(value)
    if value is None:
        out += b"n"
    elif kind is bool:
        out += b"b" + bytes([value])
    elif kind is int:
        if not -(2**63) <= value < 2**63:
            raise TypeError("an integer beyond 64 bits")
        out += b"i" + struct.pack("<q", value)
    elif kind is float:
        out += b"f" + struct.pack("<d", value)
    elif kind is str:
        text = value.encode("utf-8", "replace")[:_MAX_TEXT_BYTES]
        out += b"s" + struct.pack("<I", len(text)) + text
    elif kind in (list, tuple):
        out += (b"l" if kind is list else b"t") + struct.pack("<I", len(value))
        for item in value:
            _encode(item, out, depth - 1)
    elif kind is dict:
        out += b"d" + struct.pack("<I", len(value))
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError("only text can be a key")
            _encode(key, out, depth - 1)
            _encode(item, out, depth - 1)
    elif kind is TensorLeaf:
        device = value.device.encode()[:255]
        out += b"T" + bytes([DTYPES.index(value.dtype), len(value.shape)])
        out += struct.pack(f"<{len(value.shape)}q", *value.shape) + struct.pack("<q", value.offset)
        out += bytes([len(device)]) + device
        out += bytes([value.strides is not None])
        if value.strides is not None:
            out += struct.pack(f"<{len(value.shape)}q", *value.strides)
    else:
        raise TypeError(f"a value of type {kind.__name__} does not travel")


def decode_tree(body: bytes) -> Any:
    """The value that `encode_tree` wrote.

    Raises:
        ProtocolError: the bytes are not the form of one value.
    """
    reader = _Reader(body)
    value = reader.value(_MAX_DEPTH)
    if reader.place != len(body):
        raise ProtocolError("bytes after the value")
    return value


class _Reader:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.place = 0
        self.nodes = 0

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self.body):
            raise ProtocolError("the value is cut off")
        part = self.body[self.place : end]
        self.place = end
        return part

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        self.nodes += 1
        if depth < 0 or self.nodes > _MAX_NODES:
            raise ProtocolError("the value is too deep or too large")
        tag = self.take(1)
        match tag:
            case b"n":
                return None
            case b"b":
                flag = self.take(1)[0]
                if flag > 1:
                    raise ProtocolError("a truth value is 0 or 1")
                return bool(flag)
            case b"i":
                return self.number("<q")
            case b"f":
                return self.number("<d")
            case b"s":
                return self.text(self.number("<I"))
            case b"l":
                return [self.value(depth - 1) for _ in range(self.count())]
            case b"t":
                return tuple(self.value(depth - 1) for _ in range(self.count()))
            case b"d":
                pairs = [(self.value(depth - 1), self.value(depth - 1)) for _ in range(self.count())]
                if not all(isinstance(key, str) for key, _ in pairs):
                    raise ProtocolError("only text can be a key")
                return dict(pairs)
            case b"T":
                return self.tensor()
        raise ProtocolError("an unknown tag")

    def count(self) -> int:
        count: int = self.number("<I")
        if count > _MAX_NODES:
            raise ProtocolError("the value is too large")
        return count

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text that is not UTF-8") from None

    def tensor(self) -> TensorLeaf:
        code, dimensions = self.take(2)
        if code >= len(DTYPES) or dimensions > 64:
            raise ProtocolError("an unknown dtype or too many dimensions")
        shape = tuple(self.number("<q") for _ in range(dimensions))
        if any(size < 0 for size in shape):
            raise ProtocolError("a negative size")
        offset = self.number("<q")
        device = self.text(self.take(1)[0])
        marked = self.take(1)[0]
        if marked > 1:
            raise ProtocolError("a truth value is 0 or 1")
        strides = tuple(self.number("<q") for _ in range(dimensions)) if marked else None
        return TensorLeaf(DTYPES[code], shape, device, offset, strides)


# --- backends -------------------------------------------------------------------------------------------------------


class BackendRunner(Protocol):
    """The half of a backend that works inside the zygote and the runner. Nothing of it runs in the main process.

    It is made once in the zygote, before any candidate is known, and called in forks of it.
    """

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        """`interpreter`, `cpu` or `gpu`: which zygote serves these options. Called in the judge; imports nothing."""
        ...

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Environment variables of the zygote, set before Python starts, and of its runners."""
        ...

    def preload(self, mode: str) -> Sequence[str]:
        """Modules that the zygote imports beside torch, so that each fork has them."""
        ...

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any] | None:
        """How `load_inline` of a candidate is built; None: candidates build nothing.

        Keys: `language` (`cuda`, `hip` or `cpp`), `arch` (a list; empty for that of the GPU at hand), `flags` (added to
        every build), `device_only`."""
        ...

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Load the candidate written at `path` and return its `ModelNew` class. Called in the runner.

        Raises whatever the candidate's code raises.
        """
        ...

    def classify(self, error: BaseException) -> str:
        """`compile`, `memory` or `error` for an exception raised by the candidate."""
        ...

    # In mode `compile`, where nothing is run, a runner half may offer
    #     def compile_check(self, module, options) -> str
    # which compiles what the loaded module defines and says in a sentence what was checked.
    #
    # For the probe `no_op` it may offer
    #     def disable_kernels(self) -> None
    # called in the runner before a candidate is loaded: no kernel that the candidate launches then does anything.
    # Extensions are not its concern: they are built with empty kernels, and those for the processor do nothing.
