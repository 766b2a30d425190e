"""What `capture.c` makes of calls of the CUDA runtime, linked with a substitute of the runtime."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelrl_build import commands

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

_EXTENSION = """
#include <stddef.h>
typedef struct { unsigned x, y, z; } Size;
int cudaLaunchKernel(const void*, Size, Size, void**, size_t, void*);
int cudaMalloc(void**, size_t);
int cudaMemcpy(void*, const void*, size_t, int);
int cudaDeviceSynchronize(void);
int launch(void* stream) { Size one = {1, 2, 3}, two = {4, 5, 6}; return cudaLaunchKernel(0, one, two, 0, 7, stream); }
int __cudaGetKernel(void**, const void*);
int __cudaLaunchKernel(void*, Size, Size, void**, size_t, void*);
int __cudaLaunchKernel_ptsz(void*, Size, Size, void**, size_t, void*);
int launch_by_handle(void* stream) {
  Size one = {1, 2, 3}, two = {4, 5, 6};
  void* handle = &one;
  return __cudaGetKernel(&handle, 0) || __cudaLaunchKernel(handle, one, two, 0, 7, stream);
}
int launch_per_thread(void* stream) {
  Size one = {1, 2, 3};
  return __cudaLaunchKernel_ptsz(0, one, one, 0, 7, stream);
}
int allocate(void) { void* at; return cudaMalloc(&at, 8); }
int copy(void) { return cudaMemcpy(0, 0, 8, 3); }
int wait(void) { return cudaDeviceSynchronize(); }
"""
_RUNTIME = """
#include <stddef.h>
typedef struct { unsigned x, y, z; } Size;
static void* stream_now;
const char* called = "nothing";
long seen_stream = -1;
unsigned seen_sizes;
void* krl_capture_stream(void) { return stream_now; }
void capture_to(void* stream) { stream_now = stream; }
int cudaLaunchKernel(const void* f, Size grid, Size block, void** a, size_t shared, void* stream) {
  called = "cudaLaunchKernel"; seen_stream = (long)stream;
  seen_sizes = grid.x * 100000 + grid.y * 10000 + grid.z * 1000 + block.x * 100 + block.y * 10 + block.z;
  return shared == 7 && !f && !a ? 0 : 1;
}
#define SEEN(name, arguments, stream) int name arguments { called = #name; seen_stream = (long)stream; return 0; }
SEEN(cudaLaunchKernel_ptsz, (const void* f, Size g, Size b, void** a, size_t n, void* s), s)
SEEN(cudaLaunchCooperativeKernel, (const void* f, Size g, Size b, void** a, size_t n, void* s), s)
SEEN(cudaLaunchKernelExC, (const void* l, const void* f, void** a), 0)
SEEN(cudaMemcpyAsync, (void* t, const void* f, size_t n, int k, void* s), s)
SEEN(cudaMemsetAsync, (void* t, int v, size_t n, void* s), s)
SEEN(cudaMemcpy, (void* t, const void* f, size_t n, int k), 0)
SEEN(cudaMemset, (void* t, int v, size_t n), 0)
SEEN(cudaMalloc, (void** a, size_t n), 0)
SEEN(cudaMallocAsync, (void** a, size_t n, void* s), s)
SEEN(cudaFree, (void* a), 0)
SEEN(cudaFreeAsync, (void* a, void* s), s)
SEEN(cudaDeviceSynchronize, (void), 0)
SEEN(cudaStreamSynchronize, (void* s), s)
SEEN(cudaEventSynchronize, (void* e), 0)
"""
STREAM = 77


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The extension and the runtime. The runtime's symbols are global, so there is one of them."""
    tmp_path = tmp_path_factory.mktemp("capture")
    (tmp_path / "extension.c").write_text(_EXTENSION)
    (tmp_path / "runtime.c").write_text(_RUNTIME)
    source = Path(commands.__file__).with_name("capture.c")
    runtime, extension = tmp_path / "runtime.so", tmp_path / "extension.so"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", str(tmp_path / "runtime.c"), "-o", str(runtime)], check=True)
    wraps = [f"-Wl,--wrap={name}" for name in commands.CAPTURED]
    parts = [str(source), str(tmp_path / "extension.c")]
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", *parts, *wraps, "-o", str(extension)], check=True)
    loaded = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(extension)), loaded


@pytest.fixture
def linked(built: tuple[Any, Any]) -> tuple[Any, Any]:
    built[1].capture_to(None)
    return built


def seen(runtime: Any) -> tuple[str, int]:
    name = ctypes.c_char_p.in_dll(runtime, "called").value
    assert name is not None
    return name.decode(), ctypes.c_long.in_dll(runtime, "seen_stream").value


@pytest.mark.parametrize("stream", [0, 1, 2, 500])
def test_without_a_capture_work_stays_where_it_was_sent(linked: tuple[Any, Any], stream: int) -> None:
    extension, runtime = linked
    assert extension.launch(ctypes.c_void_p(stream)) == 0
    assert seen(runtime) == ("cudaLaunchKernel", stream)


@pytest.mark.parametrize(("stream", "expected_stream"), [(0, STREAM), (1, STREAM), (2, STREAM), (500, 500)])
def test_work_on_a_default_stream_is_captured(linked: tuple[Any, Any], stream: int, expected_stream: int) -> None:
    extension, runtime = linked
    runtime.capture_to(ctypes.c_void_p(STREAM))
    assert extension.launch(ctypes.c_void_p(stream)) == 0
    assert seen(runtime) == ("cudaLaunchKernel", expected_stream)
    assert ctypes.c_uint.in_dll(runtime, "seen_sizes").value == 123456


@pytest.mark.parametrize(
    ("launch", "function"), [("launch_by_handle", "cudaLaunchKernel"), ("launch_per_thread", "cudaLaunchKernel_ptsz")]
)
def test_a_launch_through_a_handle_is_an_ordinary_one(linked: tuple[Any, Any], launch: str, function: str) -> None:
    extension, runtime = linked
    for stream, expected_stream in ((None, 0), (STREAM, STREAM)):
        runtime.capture_to(ctypes.c_void_p(stream))
        assert getattr(extension, launch)(None) == 0
        assert seen(runtime) == (function, expected_stream)


@pytest.mark.parametrize(
    ("call", "usual", "captured"),
    [
        ("allocate", ("cudaMalloc", 0), ("cudaMallocAsync", STREAM)),
        ("copy", ("cudaMemcpy", 0), ("cudaMemcpyAsync", STREAM)),
        ("wait", ("cudaDeviceSynchronize", 0), None),
    ],
)
def test_what_would_wait_for_the_device_is_captured_instead(
    linked: tuple[Any, Any], call: str, usual: tuple[str, int], captured: tuple[str, int] | None
) -> None:
    extension, runtime = linked
    assert getattr(extension, call)() == 0
    assert seen(runtime) == usual
    extension.launch(None)
    runtime.capture_to(ctypes.c_void_p(STREAM))
    before = seen(runtime)
    assert getattr(extension, call)() == 0
    assert seen(runtime) == (captured or before)
