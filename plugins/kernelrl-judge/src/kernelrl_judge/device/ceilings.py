"""Memory bandwidth and matrix throughput of a device, measured on this machine."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import torch

from kernelrl_core.api.config import write_atomically
from kernelrl_judge.device.facts import cpu_model, device_name

__all__ = ["Ceilings", "measured_ceilings"]

_REPEATS = 7


@attrs.frozen
class Ceilings:
    """Measured rates of a device."""

    bandwidth_gb_s: float
    """Bytes read plus bytes written per second by a large copy, in 10^9 bytes per second."""
    tflops: float
    """Floating-point operations per second of a large matrix product in the dtype of the task, in 10^12."""


def measured_ceilings(device: str, dtype: torch.dtype, cache_dir: Path) -> Ceilings:
    """The ceilings of a device, from the cache or measured now. The caller holds the device exclusively.

    Args:
        dtype: type of the elements of the matrix product; float16 is measured in place of narrower ones.
    """
    dtype = dtype if dtype.itemsize > 1 else torch.float16
    name = str(dtype).removeprefix("torch.")
    key = f"{device_name(device)}-{name}-torch{torch.__version__}".replace("+", "_")
    if device != "cuda":
        key += f"-{cpu_model()}-{torch.get_num_threads()}".replace(" ", "_").replace("/", "_")
    path = cache_dir / "ceilings" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Ceilings(**json.loads(path.read_text()))
    found = _measure(device, dtype)
    # Without a writable cache, the next judge measures again.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(attrs.asdict(found)), mode=0o600, sync=False)
    return found


def _measure(device: str, dtype: torch.dtype) -> Ceilings:
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        count, size = min(1 << 30, free // 8), 8192
    else:
        count, size = 64 << 20, 768
    source = torch.empty(count, dtype=torch.uint8, device=device).random_(0, 255)
    target = torch.empty_like(source)
    copy_s = _median_s(lambda: target.copy_(source), device)
    left = torch.randn(size, size, dtype=dtype, device=device)
    right = torch.randn(size, size, dtype=dtype, device=device)
    product_s = _median_s(lambda: left @ right, device)
    return Ceilings(2 * count / copy_s / 1e9, 2 * size**3 / product_s / 1e12)


def _median_s(work: Callable[[], object], device: str) -> float:
    times = []
    for _ in range(_REPEATS + 2):
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
