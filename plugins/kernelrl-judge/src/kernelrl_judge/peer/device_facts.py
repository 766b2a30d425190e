"""What the machine can do: its device by name, and the ceilings that no kernel passes, measured here."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from kernelrl_core.api.config import gpu_vendors, write_atomically
from kernelrl_core.api.evaluators import gpu_device_name
from kernelrl_judge.task.reference import DTYPES

__all__ = [
    "Ceilings",
    "becomes_idle",
    "cache_bytes",
    "ceilings",
    "device_name",
    "kept_bytes",
    "machine_facts",
    "memory_bytes",
    "no_gpu",
]

_KEPT_BYTES = 1 << 30
_KEPT_SHARE = 128
_REPEATS = 7
_TICKS = 8
_TICK_AFTER_S = 5e-4
_AT_ONCE_S = 2e-4
"""A GPU that has kernels of another process under way turns to those of this one a millisecond later."""


@attrs.frozen
class Ceilings:
    """Measured rates of a device."""

    bandwidth_gb_s: float
    """Bytes read plus bytes written per second by a large copy, in 10^9 bytes per second."""
    tflops: float
    """Floating-point operations per second of a large matrix product in the precision asked for, in 10^12."""


def no_gpu() -> tuple[str, str]:
    """Why torch has no GPU here, and the fix."""
    if not gpu_vendors():
        return "this machine has no GPU", "use a machine with a GPU"
    if torch.version.cuda is None and torch.version.hip is None:
        return "the installed torch is built for the processor alone", "install a torch that is built for the GPU"
    said = ""
    try:
        torch.cuda.init()
    except RuntimeError as error:
        said = f": {str(error).strip().partition(chr(10))[0]}"
    return f"torch finds no GPU{said}", "look at CUDA_VISIBLE_DEVICES, and at the driver with nvidia-smi or rocm-smi"


def device_name(device: str) -> str:
    """A name of the device that is the same in every process: the GPU's UUID, or `cpu`."""
    if device != "cuda":
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    return gpu_device_name(str(getattr(properties, "uuid", properties.name)))


def machine_facts(device: str) -> Mapping[str, Any]:
    """Versions and names that a verdict depends on."""
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
        found["cpu"] = _processor()
    return found


def ceilings(device: str, precision: str, cache_dir: Path) -> Ceilings:
    """The ceilings of a device, from the cache or measured now; nobody else may use the device meanwhile."""
    key = f"{device_name(device)}-{precision}-torch{torch.__version__}".replace("+", "_")
    if device != "cuda":
        key += f"-{_processor()}-{torch.get_num_threads()}".replace(" ", "_").replace("/", "_")
    path = cache_dir / "ceilings" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Ceilings(**json.loads(path.read_text()))
    found = _measured(device, precision)
    # A cache that cannot be written costs a measurement the next time.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(attrs.asdict(found)), mode=0o600, sync=False)
    return found


def memory_bytes(device: str) -> int:
    """Memory of the first GPU, or of the machine for `cpu`."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kept_bytes() -> int:
    """Most memory of the GPU, in torch and in each arena, that a judge keeps for the next candidate."""
    return max(_KEPT_BYTES, memory_bytes("cuda") // _KEPT_SHARE)


def cache_bytes() -> int:
    """Size of the L2 cache of the first GPU."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


def becomes_idle(within_s: float) -> bool:
    """Whether, now or within that time, the GPU has nothing to do for other processes."""
    tick = torch.zeros(1, device="cuda")
    until = time.monotonic() + within_s
    while not all(_starts_at_once(tick) for _ in range(_TICKS)):
        if time.monotonic() > until:
            return False
    return True


def _starts_at_once(tick: torch.Tensor) -> bool:
    """Whether work of this process on the GPU starts at once."""
    torch.cuda.synchronize()
    time.sleep(_TICK_AFTER_S)
    started = time.perf_counter()
    tick.zero_()
    torch.cuda.synchronize()
    return time.perf_counter() - started <= _AT_ONCE_S


def _measured(device: str, precision: str) -> Ceilings:
    dtype = DTYPES[precision]
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        count, size = min(1 << 30, free // 8), 8192
    else:
        count, size = 64 << 20, 768
    source = torch.empty(count, dtype=torch.uint8, device=device).random_(0, 255)
    target = torch.empty_like(source)
    copy_s = _fastest(lambda: target.copy_(source), device)
    left = torch.randn(size, size, dtype=dtype, device=device)
    right = torch.randn(size, size, dtype=dtype, device=device)
    product_s = _fastest(lambda: left @ right, device)
    return Ceilings(2 * count / copy_s / 1e9, 2 * size**3 / product_s / 1e12)


def _fastest(work: Callable[[], object], device: str) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(_REPEATS + 2):
        wait()
        started = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


@functools.cache
def _processor() -> str:
    return _first_match("/proc/cpuinfo", r"model name\s*: (.*)") or platform.processor() or "unknown"


def _first_match(path: str, pattern: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        found = re.search(pattern, file.read())
        return found[1].strip() if found else ""
    return ""
