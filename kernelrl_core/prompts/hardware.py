"""GPU specifications for the hardware block of a prompt."""

from __future__ import annotations

import difflib

import attrs

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_devices.data_sheets import GPUS, Gpu, find_gpu
from kernelrl_devices.gpus import nvidia_gpus

__all__ = ["HardwareBlock", "hardware_block"]


@attrs.frozen
class HardwareBlock:
    """The description of a GPU in a prompt."""

    name: str
    facts: tuple[tuple[str, str], ...]
    """(label, value with unit)."""


def hardware_block(name: str) -> HardwareBlock:
    """The description of a GPU.

    Args:
        name: see `kernelrl_devices.data_sheets.find_gpu`; `auto`: the first GPU of this machine.

    Raises:
        UsageError: the GPU is unknown; the message suggests the nearest name.
        MissingPrerequisite: `auto` on a machine without an NVIDIA GPU.
    """
    gpu = _known_gpu(_installed_gpu() if name.strip().lower() == "auto" else name)
    amd = gpu.architecture.startswith("CDNA")
    facts = [
        ("Architecture", gpu.architecture),
        ("Memory", f"{gpu.memory_gb} GB at {gpu.bandwidth_gb_s} GB/s"),
        ("FP32", _rate(gpu.fp32_tflops)),
        ("TF32 matrix units", _rate(gpu.tf32_tflops)),
        ("BF16 matrix units", _rate(gpu.bf16_tflops)),
        ("L2 cache", "" if gpu.l2_mb is None else f"{gpu.l2_mb:g} MB"),
        ("Compute units" if amd else "Streaming multiprocessors", str(gpu.units or "")),
        ("LDS per compute unit" if amd else "Shared memory per multiprocessor", f"{gpu.shared_kb or ''} KB"),
    ]
    return HardwareBlock(gpu.name, tuple((label, value) for label, value in facts if value and value != " KB"))


def _known_gpu(name: str) -> Gpu:
    """The GPU with this name.

    Raises:
        UsageError: the GPU is unknown; the message suggests the nearest name.
    """
    found = find_gpu(name)
    if found is not None:
        return found
    names = [gpu.name for gpu in GPUS]
    near = difflib.get_close_matches(name.upper(), names, n=1, cutoff=0.4)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"prompt.hardware.gpu: unknown GPU {name!r}{hint}", fix=f"one of {', '.join(names)}, or auto", see="recipe"
    )


def _installed_gpu() -> str:
    """Name of this machine's first NVIDIA GPU, from `nvidia-smi`.

    Raises:
        MissingPrerequisite: there is no NVIDIA GPU or no driver.
    """
    for gpu in nvidia_gpus():
        return gpu.model
    raise MissingPrerequisite(
        "prompt.hardware.gpu: auto: no NVIDIA GPU was found on this machine",
        fix="set the name of the GPU, for example prompt.hardware.gpu=H100",
        see="gpu",
    )


def _rate(tflops: float | None) -> str:
    return "" if tflops is None else f"{tflops:g} TFLOP/s"
