"""The native library that replays graphs (`native.c`): built once per machine, loaded by judge and runner."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory

__all__ = [
    "NODE_TYPES",
    "STAMPS",
    "DriverError",
    "Library",
    "LibraryUnavailable",
    "Node",
    "Recording",
    "Stamps",
    "error_text",
    "load",
]

_pointer, _address = ctypes.c_void_p, ctypes.c_uint64
_SOURCE = Path(__file__).with_name("native.c")
_DRIVER = "libcuda.so.1"
_RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
STAMPS = 5
"""Count of the numbers that a replay writes: SM cycles and nanoseconds of the clock kernel, then the times before the
first call, after the last call, and after the copies of the outputs, in nanoseconds."""
NODE_TYPES = (
    "kernel",
    "memcpy",
    "memset",
    "host",
    "child",
    "empty",
    "event wait",
    "event record",
    "semaphore signal",
    "semaphore wait",
    "alloc",
    "free",
    "batch memory operation",
    "conditional",
)
"""Names of the driver's node types, by number."""
_LAUNCHED_BY = ("driver", "runtime", "other")
"""Values of `Node.launched_by`, by number."""


class LibraryUnavailable(Exception):
    """The library cannot be built or loaded; the arguments are the reason and the fix."""


def error_text(code: int) -> str:
    """The driver's text for a `CUresult`."""
    text = ctypes.c_char_p()
    with contextlib.suppress(OSError):
        ctypes.CDLL(_DRIVER).cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"number {code}"


class DriverError(Exception):
    """The driver reports an error.

    Args:
        call: name of the library's function.
        code: `CUresult`.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"CUDA error: {error_text(code)} ({call})")
        self.code = code


@attrs.frozen
class Stamps:
    """Times of one replay, written by the device."""

    sm_cycles: int
    sm_ns: int
    begin_ns: int
    end_ns: int
    last_ns: int

    @property
    def calls_us(self) -> float:
        """Device time of the calls, in microseconds."""
        return (self.end_ns - self.begin_ns) / 1e3

    @property
    def sm_ghz(self) -> float:
        """SM clock at the beginning of the replay."""
        return self.sm_cycles / max(1, self.sm_ns)


class _NativeNode(ctypes.Structure):
    """`Node` of `native.c`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("on_host", ctypes.c_int),
        ("launched_by", ctypes.c_int),
        ("blocks", ctypes.c_int),
        ("n_addresses", ctypes.c_int),
        ("filled_bytes", ctypes.c_uint64),
        ("addresses", ctypes.c_uint64 * 24),
        ("name", ctypes.c_char * 1024),
        ("file", ctypes.c_char * 160),
    )


@attrs.frozen
class Node:
    """A node of a captured graph."""

    type: str
    """One of `NODE_TYPES`."""
    on_host: bool
    """A copy from or to host memory."""
    launched_by: str
    """API that launched a kernel: `driver`; `runtime`: the CUDA runtime of torch; `other`: another copy of it."""
    name: str
    """Symbol of a kernel."""
    file: str
    """File that registered a kernel with the runtime; empty if unknown."""
    blocks: int = 0
    """Number of blocks of a kernel's grid."""
    addresses: frozenset[int] = frozenset()
    """Addresses of device memory among a kernel's arguments."""
    filled_bytes: int = 0
    """Size of the memory that a node of type `memset` fills."""


class _NativeRecording(ctypes.Structure):
    """`Recording` of `native.c`."""

    _fields_ = (
        ("graph", ctypes.c_void_p),
        ("ready", ctypes.c_void_p),
        ("stamps", ctypes.c_void_p),
        ("own", ctypes.POINTER(ctypes.c_uint32)),
        ("n_own", ctypes.c_size_t),
        ("glue", ctypes.POINTER(ctypes.c_uint32)),
        ("n_glue", ctypes.c_size_t),
    )


@attrs.frozen
class Recording:
    """A graph that can be replayed."""

    graph: int
    """`CUgraph`, which `Captured` owns."""
    ready: int
    """`CUgraphExec`."""
    stamps_at: int
    """Address of `STAMPS` numbers of 64 bits, which every replay writes."""
    own: tuple[int, ...] = ()
    """Numbers of the candidate's own kernels, which the judge can disable."""
    glue: tuple[int, ...] = ()
    """Numbers of copies and fills, which the judge can disable as well."""


class Library:
    """The functions of the native library.

    Its symbols are global, because extensions of candidates read the captured stream from it. Calls keep the global
    interpreter lock, so that no thread of the candidate runs Python during a call.

    Args:
        path: the shared object.
        driver: file name of the driver's library.
    """

    def __init__(self, path: str, driver: str = _DRIVER) -> None:
        self._functions = ctypes.PyDLL(path, mode=ctypes.RTLD_GLOBAL)
        self._functions.krl_open.restype = ctypes.c_char_p
        runtime = next((name for name in _RUNTIMES if _is_loaded(name)), None)
        missing = self._functions.krl_open(driver.encode(), runtime.encode() if runtime else None)
        if missing is not None:
            raise LibraryUnavailable(f"the CUDA driver lacks {missing.decode()}", "install driver 550 or newer")

    def load(self) -> None:
        """Load the device code into the current context."""
        self._call("krl_load")

    def host_memory(self, count: int) -> int:
        """Address of `count` bytes of zeroed host memory that the device can read and write."""
        at = ctypes.c_void_p()
        self._call("krl_host_memory", ctypes.c_size_t(count), ctypes.byref(at))
        assert at.value is not None
        ctypes.memset(at.value, 0, count)
        return at.value

    def stream(self) -> int:
        """A new stream. While it is captured, work on the legacy default stream fails."""
        made = ctypes.c_void_p()
        self._call("krl_stream", ctypes.byref(made))
        return made.value or 0

    def stamp(self, stream: int, at: int) -> None:
        """Have the device write the time to an address."""
        self._call("krl_stamp", _pointer(stream), _address(at))

    def clock(self, stream: int, at: int, length_ns: int) -> None:
        """Have the device count its cycles for at least `length_ns`, and write cycles and nanoseconds to an address."""
        self._call("krl_clock", _pointer(stream), _address(at), ctypes.c_uint64(length_ns))

    def fill(self, stream: int, at: int, byte: int, count: int) -> None:
        """Fill bytes on the device."""
        self._call("krl_fill", _pointer(stream), _address(at), ctypes.c_uint(byte), ctypes.c_size_t(count))

    @contextlib.contextmanager
    def capturing(self, stream: int) -> Iterator[None]:
        """Within the context, extensions send work that names no stream to this one, and do not wait for the device."""
        self._functions.krl_capture_to(_pointer(stream))
        try:
            yield
        finally:
            self._functions.krl_capture_to(None)

    def wait(self, stream: int) -> None:
        """Wait until the device has done the work of a stream."""
        self._call("krl_wait", _pointer(stream))

    def captured(self, stream: int) -> int | None:
        """Number of nodes that a stream has captured so far; None if the stream does not capture validly."""
        found = int(self._functions.krl_captured(_pointer(stream)))
        return found if found >= 0 else None

    def nodes(self, graph: int, begin: int, end: int) -> list[Node]:
        """The nodes with numbers from `begin` to `end` - 1, in the order of their capture."""
        found = (_NativeNode * max(1, end - begin))()
        self._call("krl_nodes", _pointer(graph), ctypes.c_size_t(begin), ctypes.c_size_t(end), found)
        return [
            Node(
                NODE_TYPES[node.type] if node.type < len(NODE_TYPES) else f"type {node.type}",
                bool(node.on_host),
                _LAUNCHED_BY[node.launched_by],
                node.name.decode("utf-8", "replace"),
                node.file.decode("utf-8", "replace"),
                node.blocks,
                frozenset(node.addresses[: node.n_addresses]),
                node.filled_bytes,
            )
            for node in found[: end - begin]
        ]

    def instantiate(self, graph: int, stream: int) -> int:
        """Prepare a graph for replays; returns its `CUgraphExec`."""
        ready = ctypes.c_void_p()
        self._call("krl_instantiate", _pointer(graph), _pointer(stream), ctypes.byref(ready))
        assert ready.value is not None
        return ready.value

    def destroy(self, ready: int) -> None:
        """Free a graph that `instantiate` prepared."""
        self._call("krl_destroy", _pointer(ready))

    def queue(self, recording: Recording, stream: int, gate_at: int, number: int) -> None:
        """Queue a replay behind a gate that `release` opens.

        Args:
            gate_at: address of the gate's word.
            number: value of that word at which the gate opens.
        """
        graph = _pointer(recording.graph), _pointer(recording.ready)
        self._call("krl_queue", *graph, _pointer(stream), _address(gate_at), ctypes.c_uint(number))

    def release(self, recording: Recording, stream: int, gate_at: int, number: int) -> None:
        """Open the gate and wait for the device."""
        graph = _pointer(recording.graph), _pointer(recording.ready)
        self._call("krl_release", *graph, _pointer(stream), _pointer(gate_at), ctypes.c_uint(number))

    def serve(
        self, descriptor: int, kinds: tuple[int, int], stream: int, gate_at: int, recordings: Sequence[Recording]
    ) -> bool:
        """Serve a judge's orders from a stream socket; returns whether the judge ended the service in order.

        Args:
            descriptor: of the stream socket.
            kinds: kind of the frames of orders, and kind of the replies.
        """
        # References that keep the arrays alive during the call.
        arrays: list[Any] = []
        native_recordings = (_NativeRecording * len(recordings))()
        for native, recording in zip(native_recordings, recordings, strict=True):
            own_numbers = _numbers(recording.own)
            glue_numbers = _numbers(recording.glue)
            arrays += [own_numbers, glue_numbers]
            native.graph = recording.graph
            native.ready = recording.ready
            native.stamps = recording.stamps_at
            native.own = ctypes.cast(own_numbers, ctypes.POINTER(ctypes.c_uint32))
            native.n_own = len(recording.own)
            native.glue = ctypes.cast(glue_numbers, ctypes.POINTER(ctypes.c_uint32))
            native.n_glue = len(recording.glue)
        order_kind, reply_kind = kinds
        status = self._functions.krl_serve(
            descriptor,
            order_kind,
            reply_kind,
            _pointer(stream),
            _pointer(gate_at),
            native_recordings,
            ctypes.c_size_t(len(recordings)),
        )
        return bool(status == 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._functions, name)(*arguments)
        if code:
            raise DriverError(name, code)


def _numbers(values: Sequence[int]) -> Any:
    """An array of C, never empty."""
    return (ctypes.c_uint32 * max(1, len(values)))(*values)


def stamps_at(address: int) -> Stamps:
    """The numbers that the last replay wrote."""
    return Stamps(*(ctypes.c_uint64 * STAMPS).from_address(address))


@functools.cache
def load() -> Library:
    """The native library, built if it is not in this machine's cache. Creates no CUDA context.

    Raises:
        LibraryUnavailable: there is no C compiler, or no driver.
    """
    source = _SOURCE.read_bytes()
    folder = cache_directory() / "replay"
    path = folder / f"{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not path.exists():
        _build(path)
    return Library(str(path))


def _build(path: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise LibraryUnavailable("no C compiler was found", "install gcc, or set CC")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".so", delete=False) as file:
        made = Path(file.name)
    try:
        command = [compiler, "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(made), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise LibraryUnavailable(
                f"{compiler} failed: {done.stderr.strip()[-300:]}", "repair the C compiler, or set CC"
            )
        made.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            made.unlink()


def _is_loaded(name: str) -> bool:
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        return any(name in line for line in maps)
    return False
