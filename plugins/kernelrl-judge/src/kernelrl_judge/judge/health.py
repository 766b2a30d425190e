"""Probe of a device: whether it stores and computes correctly. Runs in a judge, because a failed device may hang."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelrl_core.api.evaluators import DeviceLease
from kernelrl_judge.device.facts import no_gpu
from kernelrl_judge.protocol.failures import lacks_device_memory

__all__ = ["examine", "probe"]

_PATTERN_WORDS = 1 << 21
_SIDE = 512
_LARGEST = 8
_PROBE_LIMIT_S = 20.0
_LEASE_LIMIT_S = 600.0


def examine(device: str, expect: Callable[[float], None], leases_of: Callable[[str], DeviceLease]) -> str | None:
    """Probe a device while no timed work runs on it.

    Args:
        device: `cuda` or `cpu`.
        expect: gets the number of seconds within which it is called again, or this function returns.
        leases_of: makes the leases of a device.

    Returns:
        Why the device failed, or None.
    """
    if device == "cuda" and not torch.cuda.is_available():
        return no_gpu()[0]
    try:
        leases = leases_of(device)
    except RuntimeError as error:
        return _text(error)
    # A candidate may have taken all memory: then once more without one.
    for lease in (leases.shared, leases.alone):
        expect(_LEASE_LIMIT_S)
        with lease():
            expect(_PROBE_LIMIT_S)
            reason = probe(device)
        if reason is None or not lacks_device_memory(reason):
            break
    return reason


def probe(device: str) -> str | None:
    """Why a device does not store a pattern or multiplies incorrectly, or None. Takes milliseconds."""
    generator = torch.Generator().manual_seed(0)
    pattern = torch.randint(-(1 << 31), 1 << 31, (_PATTERN_WORDS,), dtype=torch.int32, generator=generator)
    factors = torch.randint(-_LARGEST, _LARGEST, (2, _SIDE, _SIDE), generator=generator)
    # Sums of small integers are exact in every order, and in TF32.
    left, right = factors.to(torch.float32)
    expected = torch.matmul(*factors.to(torch.float64))
    try:
        kept = pattern.to(device, copy=True)
        inverted = torch.bitwise_not(kept)
        product = torch.matmul(left.to(device), right.to(device))
        if device == "cuda":
            torch.cuda.synchronize()
        if not (torch.equal(kept.cpu(), pattern) and torch.equal(inverted.cpu(), torch.bitwise_not(pattern))):
            return "its memory does not keep written values"
        wrong = int((product.cpu().to(torch.float64) != expected).sum())
    except RuntimeError as error:
        return _text(error)
    return f"{wrong} of {expected.numel()} elements of a matrix product are wrong" if wrong else None


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
