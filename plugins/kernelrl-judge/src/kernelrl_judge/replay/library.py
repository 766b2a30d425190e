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
"""Numbers that a pass writes: SM cycles and nanoseconds of the clock kernel, then the times before the first call,
after the last call, and after the copies of the outputs, in nanoseconds."""
NODE_TYPES = (
    *("kernel", "memcpy", "memset", "host", "child", "empty", "event wait", "event record"),
    *("semaphore signal", "semaphore wait", "alloc", "free", "batch memory operation", "conditional"),
)
"""Names of the driver's types of nodes, by number."""


class LibraryUnavailable(Exception):
    """The library cannot be built or loaded; the arguments are the reason and the fix."""


def error_text(code: int) -> str:
    """The driver's text for a `CUresult`."""
    text = ctypes.c_char_p()
    with contextlib.suppress(OSError):
        ctypes.CDLL(_DRIVER).cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"number {code}"


class DriverError(Exception):
    """The driver refused a call.

    Args:
        call: name of the library's function.
        code: `CUresult`.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"CUDA error: {error_text(code)} ({call})")
        self.code = code


@attrs.frozen
class Stamps:
    """Times of one pass, as the device wrote them."""

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
        """SM clock at the beginning of the pass."""
        return self.sm_cycles / max(1, self.sm_ns)


class _Node(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("on_host", ctypes.c_int),
        ("launched_by", ctypes.c_int),
        ("blocks", ctypes.c_int),
        ("n_addresses", ctypes.c_int),
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
    """Of a kernel: `driver`, `runtime` for the CUDA runtime that torch uses, `other` for another copy of it."""
    name: str
    """Symbol of a kernel."""
    file: str
    """File that registered a kernel with the runtime; empty where that is not known."""
    blocks: int = 0
    """Of a kernel's grid."""
    addresses: frozenset[int] = frozenset()
    """Device memory that a kernel's arguments point at."""


_LAUNCHED_BY = ("driver", "runtime", "other")


class _Recording(ctypes.Structure):
    _fields_ = (
        ("graph", ctypes.c_void_p),
        ("ready", ctypes.c_void_p),
        ("stamps", ctypes.c_void_p),
        ("own", ctypes.POINTER(ctypes.c_uint32)),
        ("n_own", ctypes.c_size_t),
    )


@attrs.frozen
class Recording:
    """A graph that can be replayed."""

    graph: int
    """`CUgraph`; whoever captured it keeps it."""
    ready: int
    """`CUgraphExec`."""
    stamps_at: int
    """Address of `STAMPS` numbers of 64 bits, written by every pass."""
    own: tuple[int, ...] = ()
    """Numbers of the nodes that an order of the judge turns off."""


class Library:
    """The functions of the library.

    Its symbols are global: extensions of candidates ask it for the stream that is captured. The global interpreter lock
    stays held during a call, so that no thread of the candidate runs Python meanwhile.

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
        """A new stream. Work on the legacy default stream fails while it is captured."""
        made = ctypes.c_void_p()
        self._call("krl_stream", ctypes.byref(made))
        return made.value or 0

    def stamp(self, stream: int, at: int) -> None:
        """Have the device write the time to an address."""
        self._call("krl_stamp", _pointer(stream), _address(at))

    def clock(self, stream: int, at: int, length_ns: int) -> None:
        """Have the device count its cycles for at least so many nanoseconds; writes cycles and nanoseconds."""
        self._call("krl_clock", _pointer(stream), _address(at), ctypes.c_uint64(length_ns))

    def fill(self, stream: int, at: int, byte: int, count: int) -> None:
        """Fill bytes on the device."""
        self._call("krl_fill", _pointer(stream), _address(at), ctypes.c_uint(byte), ctypes.c_size_t(count))

    @contextlib.contextmanager
    def capturing(self, stream: int) -> Iterator[None]:
        """Have extensions send work without a stream of its own to this one, and not wait for the device."""
        self._functions.krl_capture_to(_pointer(stream))
        try:
            yield
        finally:
            self._functions.krl_capture_to(None)

    def wait(self, stream: int) -> None:
        """Wait until the device has done the work of a stream."""
        self._call("krl_wait", _pointer(stream))

    def captured(self, stream: int) -> int | None:
        """Number of nodes that a stream has captured so far; None where its capture is invalid or never began."""
        found = int(self._functions.krl_captured(_pointer(stream)))
        return found if found >= 0 else None

    def nodes(self, graph: int, begin: int, end: int) -> list[Node]:
        """The nodes with numbers from `begin` to `end` - 1, in the order of their capture."""
        found = (_Node * max(1, end - begin))()
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
            )
            for node in found[: end - begin]
        ]

    def instantiate(self, graph: int, stream: int) -> int:
        """Make a graph ready; returns its `CUgraphExec`."""
        ready = ctypes.c_void_p()
        self._call("krl_instantiate", _pointer(graph), _pointer(stream), ctypes.byref(ready))
        assert ready.value is not None
        return ready.value

    def destroy(self, ready: int) -> None:
        """Free what `instantiate` made."""
        self._call("krl_destroy", _pointer(ready))

    def queue(self, recording: Recording, stream: int, gate_at: int, turn: int) -> None:
        """Queue a pass behind a gate that `release` opens."""
        graph = _pointer(recording.graph), _pointer(recording.ready)
        self._call("krl_queue", *graph, _pointer(stream), _address(gate_at), ctypes.c_uint(turn))

    def release(self, recording: Recording, stream: int, gate_at: int, turn: int) -> None:
        """Open the gate and wait for the device."""
        graph = _pointer(recording.graph), _pointer(recording.ready)
        self._call("krl_release", *graph, _pointer(stream), _pointer(gate_at), ctypes.c_uint(turn))

    def serve(
        self, descriptor: int, kinds: tuple[int, int], stream: int, gate_at: int, recordings: Sequence[Recording]
    ) -> bool:
        """Serve a judge's orders from a stream socket until it leaves; returns whether it did.

        Args:
            kinds: of the frames of orders and of answers.
        """
        keep: list[Any] = []
        made = (_Recording * len(recordings))()
        for one, recording in zip(made, recordings, strict=True):
            numbers = (ctypes.c_uint32 * max(1, len(recording.own)))(*recording.own)
            keep.append(numbers)
            one.graph, one.ready, one.stamps = recording.graph, recording.ready, recording.stamps_at
            one.own, one.n_own = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_uint32)), len(recording.own)
        ended = self._functions.krl_serve(
            *(descriptor, *kinds, _pointer(stream), _pointer(gate_at), made, ctypes.c_size_t(len(recordings)))
        )
        return bool(ended == 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._functions, name)(*arguments)
        if code:
            raise DriverError(name, code)


def stamps_at(address: int) -> Stamps:
    """The numbers that the last pass wrote."""
    return Stamps(*(ctypes.c_uint64 * STAMPS).from_address(address))


@functools.cache
def load() -> Library:
    """The library, built if this machine has not built it yet. Creates no context.

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
