"""GPUs of this machine, as the driver's tools list them. Loads no driver into this process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

__all__ = ["InstalledGpu", "gpu_vendors", "nvidia_gpus", "used_memory_share", "visible_gpus"]

_FIELDS = ("uuid", "name", "compute_cap", "driver_version", "memory.total")


@attrs.frozen
class InstalledGpu:
    """A GPU of this machine."""

    id: str
    """Value of `CUDA_VISIBLE_DEVICES` that selects it: its UUID, or its index."""
    model: str = ""
    """Name by its driver, such as `NVIDIA H200`; empty: unknown."""
    arch: str = ""
    """Compute capability, such as `9.0`; empty: unknown."""
    driver: str = ""
    """Version of the driver."""
    memory_mib: int = 0
    """0: unknown."""


def gpu_vendors() -> frozenset[str]:
    """Vendors (`nvidia`, `amd`) with a device that this process can access. Loads no driver."""
    found = set()
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        found.add("nvidia")
    if Path("/dev/kfd").exists():
        found.add("amd")
    return frozenset(found)


def nvidia_gpus() -> tuple[InstalledGpu, ...]:
    """All NVIDIA GPUs of this machine, in the order of `nvidia-smi`; empty without a driver. Blocks for up to 20 s."""
    rows = _queried(_FIELDS)
    return tuple(InstalledGpu(uuid, model, arch, driver, _number(memory)) for uuid, model, arch, driver, memory in rows)


def used_memory_share(gpu: str) -> float | None:
    """Share of the memory of an NVIDIA GPU that is in use by any program; None if it is unknown. Blocks for up to 20 s.

    Args:
        gpu: its index or UUID.
    """
    found = _queried(("memory.used", "memory.total"), f"--id={gpu}")
    used, total = map(_number, found[0]) if found else (0, 0)
    return used / total if total else None


def _queried(fields: Sequence[str], *options: str) -> list[list[str]]:
    """Values of these fields, by GPU; empty without a driver."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(fields)] if done.returncode == 0 else []


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def visible_gpus() -> tuple[InstalledGpu, ...]:
    """The GPUs that this process may use, by `CUDA_VISIBLE_DEVICES`, and by `HIP_VISIBLE_DEVICES` on AMD. Model and
    architecture are known for NVIDIA GPUs."""
    vendors = gpu_vendors()
    if not vendors:
        return ()
    installed = nvidia_gpus() if "nvidia" in vendors else ()
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        given = os.environ.get(variable)
        if given is not None:
            names = [name.strip() for name in given.split(",") if name.strip()]
            names = names[: names.index("-1")] if "-1" in names else names
            return tuple(_named(name, installed) for name in names)
    if os.path.exists("/dev/kfd"):
        nodes = [name for name in os.listdir("/dev/dri") if name.startswith("renderD")]
        return tuple(InstalledGpu(str(index)) for index in range(len(nodes)))
    return installed


def _named(name: str, installed: tuple[InstalledGpu, ...]) -> InstalledGpu:
    """The GPU with this index, or with a UUID that begins so."""
    if name.isdigit():
        found = installed[int(name) :][:1]
    else:
        found = tuple(gpu for gpu in installed if gpu.id.startswith(name))[:1]
    return attrs.evolve(found[0], id=name) if found else InstalledGpu(name)
