"""Host memory of timed calls: allocated and touched before a window."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

_CALLS = """
import resource, sys
import torch
from kernelrl_judge.timed_calls import host_memory

if sys.argv[1] == "kept":
    host_memory.keep()
calls, size = int(sys.argv[2]), int(sys.argv[3]) >> 2
places = torch.ones(calls, size)
for _ in range(3):
    inputs = [torch.ones(size) for _ in range(calls)]
    if sys.argv[1] == "kept":
        host_memory.ready([size << 2] * 2 * calls)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for place, x in zip(places, inputs):
        place.copy_(torch.relu(x) * 2.0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _new_pages(kind: str, *calls: int) -> list[int]:
    """Number of new pages in each of three windows.

    Args:
        calls: number of calls in a window, and bytes of the tensor of each.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CALLS, kind, *map(str, calls)], capture_output=True, text=True, check=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator is that of glibc")
def test_calls_take_no_new_pages_where_memory_is_ready() -> None:
    # They allocate 128 and 160 MiB; a MiB has 256 pages.
    assert max(_new_pages("kept", 64, 1 << 20)) < 1000
    # Large allocations may be new in the first window, which is not timed.
    assert max(_new_pages("kept", 2, 40 << 20)[1:]) < 1000


_AFTERWARDS = """
import torch
from kernelrl_judge.timed_calls import host_memory

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with host_memory.kept():
    tensors = [torch.ones(512, 512) for _ in range(64)]
    del tensors
    during = resident_bytes()
print(during - resident_bytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator is that of glibc")
def test_kept_memory_is_returned_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", _AFTERWARDS], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 << 20


def test_sizes_beyond_the_limit_are_ignored() -> None:
    from kernelrl_judge.timed_calls import host_memory

    host_memory.ready([1 << 62, 0, 1])


_COLLAPSED = """
import os, re
from kernelrl_judge.timed_calls import host_memory

def large_kb():
    return int(re.search(r"AnonHugePages:\\s+(\\d+)", open("/proc/self/smaps_rollup").read())[1])

held = [bytes([number % 251]) * 1000 for number in range(64_000)]
before = large_kb()
host_memory.in_large_pages()
child = os.fork()
if not child:
    held[7] = b""
    os._exit(0)
os.waitpid(child, 0)
assert all(item == bytes([number % 251]) * 1000 for number, item in enumerate(held))
print(large_kb() - before)
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages")
def test_memory_in_large_pages_keeps_its_contents() -> None:
    done = subprocess.run([sys.executable, "-c", _COLLAPSED], capture_output=True, text=True, check=True)
    version = tuple(map(int, platform.release().split(".")[:2]))
    assert int(done.stdout) > 32_000 or version < (6, 1)
