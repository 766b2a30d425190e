"""Names, versions and memory of the device that a judge uses."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import time
from collections.abc import Mapping
from typing import Any

import torch

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import gpu_device_name

__all__ = [
    "becomes_idle",
    "cache_bytes",
    "cpu_model",
    "device_name",
    "kept_bytes",
    "machine_facts",
    "memory_bytes",
    "no_gpu",
]

_KEPT_BYTES = 1 << 30
_KEPT_SHARE = 128
_IDLE_CHECKS = 8
_CHECK_EVERY_S = 5e-4
_STARTS_WITHIN_S = 2e-4
"""While kernels of another process run, a GPU starts those of this process about a millisecond later."""


def no_gpu() -> tuple[str, str]:
    """Why torch has no GPU here, and the fix."""
    if not gpu_vendors():
        return "this machine has no GPU", "use a machine with a GPU"
    if torch.version.cuda is None and torch.version.hip is None:
        return "the installed torch is built for the CPU alone", "install a torch that is built for the GPU"
    cause = ""
    try:
        torch.cuda.init()
    except RuntimeError as error:
        first_line = str(error).strip().partition("\n")[0]
        cause = f": {first_line}"
    return f"torch finds no GPU{cause}", "look at CUDA_VISIBLE_DEVICES, and at the driver with nvidia-smi or rocm-smi"


def device_name(device: str) -> str:
    """A name of the device that is the same in every process: the GPU's UUID, or `cpu`."""
    if device != "cuda":
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    return gpu_device_name(str(getattr(properties, "uuid", properties.name)))


def machine_facts(device: str) -> Mapping[str, Any]:
    """Versions and names that an evaluation depends on."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["gpu_id"] = device_name(device)
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found["cuda"] = str(torch.version.cuda or torch.version.hip)
        found["driver"] = _first_match("/proc/driver/nvidia/version", r"\s(\d+\.[\d.]+)\s") or "unknown"
    else:
        found["cpu"] = cpu_model()
    return found


def memory_bytes(device: str) -> int:
    """Memory of the first GPU, or of the machine for `cpu`."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kept_bytes() -> int:
    """Largest amount of GPU memory, in torch and in each arena, that a judge keeps for the next candidate."""
    return max(_KEPT_BYTES, memory_bytes("cuda") // _KEPT_SHARE)


def cache_bytes() -> int:
    """Size of the L2 cache of the first GPU."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


def becomes_idle(within_s: float) -> bool:
    """Whether the GPU has no work of other processes, now or within that time."""
    element = torch.zeros(1, device="cuda")
    until = time.monotonic() + within_s
    while not all(_starts_immediately(element) for _ in range(_IDLE_CHECKS)):
        if time.monotonic() > until:
            return False
    return True


def _starts_immediately(element: torch.Tensor) -> bool:
    """Whether a kernel of this process starts without waiting for others."""
    torch.cuda.synchronize()
    time.sleep(_CHECK_EVERY_S)
    started = time.perf_counter()
    element.zero_()
    torch.cuda.synchronize()
    return time.perf_counter() - started <= _STARTS_WITHIN_S


@functools.cache
def cpu_model() -> str:
    """Name of the CPU."""
    return _first_match("/proc/cpuinfo", r"model name\s*: (.*)") or platform.processor() or "unknown"


def _first_match(path: str, pattern: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        found = re.search(pattern, file.read())
        return found[1].strip() if found else ""
    return ""
