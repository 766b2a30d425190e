"""Properties of a GPU for kernels in the interpreter, whose code reads them to choose block sizes, grids and branches.

The values are those of an NVIDIA A100, except for the number of multiprocessors: a persistent kernel launches one
program for each, and with few programs each one executes its loop several times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

__all__ = ["install"]

_CAPABILITY = (8, 0)
_N_MULTIPROCESSORS = 4
_SHARED_BYTES = 166_912
"""Largest shared memory of a block."""
_PROPERTIES = SimpleNamespace(
    name="Triton's interpreter",
    major=_CAPABILITY[0],
    minor=_CAPABILITY[1],
    multi_processor_count=_N_MULTIPROCESSORS,
    warp_size=32,
    total_memory=40 << 30,
    L2_cache_size=40 << 20,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65_536,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=_SHARED_BYTES,
    shared_memory_per_multiprocessor=167_936,
    is_integrated=0,
    is_multi_gpu_board=0,
)
_OF_TRITON: Mapping[str, int] = {
    "max_shared_mem": _SHARED_BYTES,
    "max_num_regs": _PROPERTIES.regs_per_multiprocessor,
    "multiprocessor_count": _N_MULTIPROCESSORS,
    "warpSize": _PROPERTIES.warp_size,
    "sm_clock_rate": 1_410_000,
    "mem_clock_rate": 1_215_000,
    "mem_bus_width": 5120,
}


class _Driver:
    """Triton's driver, as far as code reads it. It launches nothing: the interpreter does."""

    utils = SimpleNamespace(get_device_properties=lambda device: dict(_OF_TRITON))

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 10 * _CAPABILITY[0] + _CAPABILITY[1], _PROPERTIES.warp_size)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda


def install() -> None:
    """Let torch and Triton return the properties in this process."""
    torch.cuda.get_device_capability = lambda device=None: _CAPABILITY
    torch.cuda.get_device_properties = lambda device=None: _PROPERTIES  # type: ignore[assignment, return-value]
    torch.cuda.get_device_name = lambda device=None: _PROPERTIES.name
    torch.cuda.current_device = lambda: 0
    # Tensors of the interpreter are on the CPU, which is no device for the originals.
    torch.cuda.device = lambda device=None: contextlib.nullcontext()  # type: ignore[assignment, misc]
    torch.cuda.synchronize = lambda device=None: None
    # Kernels assert it, or compute with torch where it is false.
    torch.Tensor.is_cuda = property(lambda tensor: True)  # type: ignore[assignment]
    driver.set_active(_Driver())  # type: ignore[arg-type]
