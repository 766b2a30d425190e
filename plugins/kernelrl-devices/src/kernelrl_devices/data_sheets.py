"""Specifications of GPUs from the data sheets of their vendors."""

from __future__ import annotations

import attrs

__all__ = ["GPUS", "Gpu", "find_gpu"]


@attrs.frozen
class Gpu:
    """Specifications from the vendor's data sheet; rates are dense, at boost clock. None: not in the data sheet."""

    name: str
    architecture: str
    memory_gb: int
    bandwidth_gb_s: int
    """Memory bandwidth in GB/s."""
    fp32_tflops: float | None = None
    """Single precision without matrix units, in TFLOP/s."""
    tf32_tflops: float | None = None
    """TF32 on matrix units, in TFLOP/s."""
    bf16_tflops: float | None = None
    """BF16 on matrix units, in TFLOP/s."""
    l2_mb: float | None = None
    units: int | None = None
    """Streaming multiprocessors, or compute units on AMD."""
    shared_kb: int | None = None
    """Maximum configurable shared memory (LDS on AMD) per unit, in KB."""


GPUS: tuple[Gpu, ...] = (
    Gpu("V100", "Volta (sm_70)", 32, 900, 15.7, None, None, 6, 80, 96),
    Gpu("T4", "Turing (sm_75)", 16, 320, 8.1, None, None, 4, 40, 64),
    Gpu("A100 40GB", "Ampere (sm_80)", 40, 1555, 19.5, 156, 312, 40, 108, 164),
    Gpu("A100 80GB", "Ampere (sm_80)", 80, 2039, 19.5, 156, 312, 40, 108, 164),
    Gpu("A10G", "Ampere (sm_86)", 24, 600, l2_mb=6, units=80, shared_kb=100),
    Gpu("RTX 3090", "Ampere (sm_86)", 24, 936, 35.6, None, None, 6, 82, 100),
    Gpu("L4", "Ada (sm_89)", 24, 300, 30.3, 60, 121, 48, 58, 100),
    Gpu("L40S", "Ada (sm_89)", 48, 864, 91.6, 183, 362, 96, 142, 100),
    Gpu("RTX 4090", "Ada (sm_89)", 24, 1008, 82.6, None, None, 72, 128, 100),
    Gpu("H100 SXM", "Hopper (sm_90)", 80, 3350, 67, 495, 989, 50, 132, 228),
    Gpu("H100 PCIe", "Hopper (sm_90)", 80, 2000, 51, 378, 756, 50, 114, 228),
    Gpu("H200", "Hopper (sm_90)", 141, 4800, 67, 495, 989, 50, 132, 228),
    Gpu("B200", "Blackwell (sm_100)", 180, 8000, None, 1100, 2250, None, 148, 228),
    Gpu("RTX 5090", "Blackwell (sm_120)", 32, 1792, 104.8, None, None, 96, 170, 100),
    Gpu("MI210", "CDNA2 (gfx90a)", 64, 1638, 22.6, None, 181, 8, 104, 64),
    Gpu("MI250X", "CDNA2 (gfx90a)", 128, 3277, 47.9, None, 383, 16, 220, 64),
    Gpu("MI300X", "CDNA3 (gfx942)", 192, 5300, 163.4, 653.7, 1307.4, None, 304, 64),
    Gpu("MI325X", "CDNA3 (gfx942)", 256, 6000, 163.4, 653.7, 1307.4, None, 304, 64),
    Gpu("MI350X", "CDNA4 (gfx950)", 288, 8000, 144.2, None, 2309.6, None, 256, 160),
    Gpu("MI355X", "CDNA4 (gfx950)", 288, 8000, 157.3, None, 2516.6, None, 256, 160),
)

_ALIASES = {"a100": "A100 80GB", "h100": "H100 SXM", "a10": "A10G"}


def find_gpu(name: str) -> Gpu | None:
    """The GPU with this name, as in `GPUS` or as `nvidia-smi` prints it; None: it is unknown."""
    wanted = _key(name)
    by_key = {_key(gpu.name): gpu for gpu in GPUS}
    if wanted in _ALIASES:
        return by_key[_key(_ALIASES[wanted])]
    if wanted in by_key:
        return by_key[wanted]
    words = set(_words(name))
    matches = [gpu for gpu in GPUS if set(_words(gpu.name)) <= words]
    if matches:
        return max(matches, key=lambda gpu: len(gpu.name))
    alias = next((target for key, target in _ALIASES.items() if key in words), None)
    return by_key[_key(alias)] if alias is not None else None


def _words(name: str) -> list[str]:
    # nvidia-smi writes "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "Tesla T4".
    words = name.lower().replace("-", " ").replace("_", " ").split()
    if "h100" in words and not {"pcie", "nvl"} & set(words):
        words.append("sxm")
    return words


def _key(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
