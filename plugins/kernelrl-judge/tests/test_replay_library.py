"""The native library of replays, compiled here and executed with a substitute for the driver, without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelrl_judge.protocol.frames import HEADER, MAGIC, FrameKind
from kernelrl_judge.replay.library import DriverError, Library, LibraryUnavailable, Recording, stamps_at
from kernelrl_testing.waiting import DEADLINE_S

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SOURCES = Path(__file__).parent
KINDS = (int(FrameKind.REPLAY), int(FrameKind.REPLAYED))
QUEUE, RELEASE, SWITCH, LEAVE = 1, 2, 3, 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    from kernelrl_judge.replay import library

    folder = tmp_path_factory.mktemp("replay")
    for source, name in (
        (Path(library.__file__).with_name("native.c"), "native"),
        (SOURCES / "substitute_driver.c", "driver"),
    ):
        command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", str(source), "-o", str(folder / f"{name}.so")]
        subprocess.run([*command, "-ldl"], check=True)
    return str(folder / "native.so"), str(folder / "driver.so")


@pytest.fixture
def driver(built: tuple[str, str]) -> Any:
    return ctypes.CDLL(built[1])


@pytest.fixture
def library(built: tuple[str, str], driver: Any) -> Library:
    found = Library(*built)
    found.load()
    return found


class Served:
    """A library that serves one recording in a thread, and the judge's end of its stream."""

    def __init__(self, library: Library, own: tuple[int, ...] = (), glue: tuple[int, ...] = ()) -> None:
        self.judge, runner = socket.socketpair()
        self.judge.settimeout(DEADLINE_S)
        self.gate_at = library.host_memory(64)
        self.stamps = library.host_memory(40)
        recording = Recording(graph=1, ready=self.stamps, stamps_at=self.stamps, own=own, glue=glue)
        self.left: list[bool] = []

        def serve() -> None:
            with runner:
                self.left.append(library.serve(runner.fileno(), KINDS, 0, self.gate_at, [recording]))

        # The library keeps the global interpreter lock, so all orders are sent before the thread starts.
        self._serve = threading.Thread(target=serve)

    def replies(self, *orders: tuple[int, int, int]) -> list[tuple[int, ...]]:
        """Send all orders, have the library serve them, and return its replies."""
        for order in orders:
            body = struct.pack("<III", *order)
            self.judge.sendall(HEADER.pack(MAGIC, KINDS[0], len(body)) + body)
        self._serve.start()
        self._serve.join(10)
        found = []
        while data := self.judge.recv(HEADER.size, socket.MSG_WAITALL):
            magic, kind, length = HEADER.unpack(data)
            assert (magic, kind) == (MAGIC, KINDS[1])
            found.append(struct.unpack("<i5Q", self.judge.recv(length, socket.MSG_WAITALL)))
        return found


@pytest.fixture
def served(library: Library) -> Iterator[Served]:
    found = Served(library, own=(1, 2), glue=(0,))
    yield found
    found.judge.close()


def test_a_replay_starts_when_the_gate_opens_and_its_times_are_returned(served: Served) -> None:
    queued, released, left = served.replies((QUEUE, 0, 0), (RELEASE, 0, 0), (LEAVE, 0, 0))
    assert queued == (0, 0, 0, 0, 0, 0)
    assert released[0] == 0
    assert [value - released[1] for value in released[1:]] == [0, 1, 2, 3, 4]
    assert released[1] > 0
    assert left[0] == 0
    assert served.left == [True]


def test_each_replay_has_a_gate_of_its_own(served: Served) -> None:
    replies = served.replies((QUEUE, 0, 0), (RELEASE, 0, 0), (QUEUE, 0, 0), (RELEASE, 0, 0), (LEAVE, 0, 0))
    assert replies[3][1] == replies[1][1] + 10
    assert ctypes.c_uint32.from_address(served.gate_at).value == 2


def test_a_large_graph_is_launched_when_the_gate_opens(served: Served, driver: Any) -> None:
    # Behind a gate, its launch would wait for the gate, which opens after the launch.
    driver.have_nodes(1001)
    try:
        driver.fail_next(700)
        queued, released, _ = served.replies((QUEUE, 0, 0), (RELEASE, 0, 0), (LEAVE, 0, 0))
    finally:
        driver.have_nodes(4)
    assert (queued[0], released[0]) == (0, 700)


def test_an_error_of_the_driver_is_returned(served: Served, driver: Any) -> None:
    driver.fail_next(700)
    queued, left = served.replies((QUEUE, 0, 0), (LEAVE, 0, 0))
    assert (queued[0], left[0]) == (700, 0)


@pytest.mark.parametrize(
    ("value", "enabled"),
    [(0, [0, 0, 0, 1]), (1, [0, 1, 1, 1]), (2, [1, 0, 0, 1]), (3, [1, 1, 1, 1])],
    ids=["neither", "own kernels", "copies", "both"],
)
def test_own_kernels_and_copies_are_switched_apart(served: Served, driver: Any, value: int, enabled: list[int]) -> None:
    served.replies((SWITCH, 0, value), (LEAVE, 0, 0))
    assert [driver.is_enabled(number) for number in range(4)] == enabled


@pytest.mark.parametrize("order", [(9, 0, 0), (QUEUE, 1, 0)])
def test_a_malformed_order_ends_the_service(served: Served, order: tuple[int, int, int]) -> None:
    assert served.replies(order) == []
    assert served.left == [False]


def test_a_closed_stream_ends_the_service(library: Library) -> None:
    served = Served(library)
    served.judge.shutdown(socket.SHUT_WR)
    assert served.replies() == []
    assert served.left == [False]


def test_nodes_have_types_and_names(library: Library) -> None:
    found = library.nodes(1, 0, 4)
    assert [(node.type, node.name, node.launched_by) for node in found] == [
        ("kernel", "first", "driver"),
        ("kernel", "other", "driver"),
        ("memset", "", "driver"),
        ("host", "", "driver"),
    ]


def test_kernels_have_blocks_and_the_memory_of_their_arguments(library: Library) -> None:
    found = library.nodes(1, 0, 1)[0]
    assert (found.blocks, found.addresses) == (6, {0x7F0000001000})


def test_fills_have_the_size_of_their_memory(library: Library) -> None:
    assert [node.filled_bytes for node in library.nodes(1, 1, 3)] == [0, 1200]


def test_the_number_of_nodes_of_an_invalid_capture_is_none(library: Library) -> None:
    # The substitute takes the stream for the status: 1 captures, 2 is invalid.
    assert (library.captured(1), library.captured(2), library.captured(0)) == (4, None, None)


def test_an_error_names_the_call_and_the_code(library: Library, driver: Any) -> None:
    driver.fail_next(900)
    with pytest.raises(DriverError, match=r"number 900 \(krl_instantiate\)"):
        library.instantiate(1, 0)


def test_a_missing_driver_is_named(built: tuple[str, str]) -> None:
    with pytest.raises(LibraryUnavailable, match=r"lacks libnone\.so"):
        Library(built[0], "libnone.so")


def test_times_of_a_replay_are_read_from_their_address(library: Library) -> None:
    at = library.host_memory(40)
    (ctypes.c_uint64 * 5).from_address(at)[:] = [99_000, 50_000, 1_000, 13_500, 20_000]
    found = stamps_at(at)
    assert found.calls_us == pytest.approx(12.5)
    assert found.sm_ghz == pytest.approx(1.98)
