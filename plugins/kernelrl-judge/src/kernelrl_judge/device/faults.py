"""Failures of a device under the judge itself. The judge raises them, and its client raises them again. No torch."""

from __future__ import annotations

from kernelrl_core.api.errors import InfrastructureError

__all__ = ["DeviceFault", "DeviceFull"]


class DeviceFault(InfrastructureError):
    """The device failed under the judge itself."""


class DeviceFull(DeviceFault):
    """The device has too little memory for the judge itself, or for a candidate beside other evaluations."""

    device: str = ""
    """The GPU, as `CUDA_VISIBLE_DEVICES` names it; empty: unknown."""
