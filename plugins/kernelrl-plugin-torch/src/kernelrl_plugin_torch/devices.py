"""The device of a model, shared with judges that time kernels on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.policies import DeviceLease, gpu_device_name

__all__ = ["DeviceShare", "usable_device"]

T = TypeVar("T")


def usable_device(name: str) -> torch.device:
    """The device of a name, if it exists.

    Raises:
        MissingPrerequisite: PyTorch finds no GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingPrerequisite(
            "policy.device is cuda, but PyTorch finds no GPU",
            fix="use a machine with a GPU, or set policy.device=cpu",
            see="gpu",
        )
    return torch.device(name)


def device_name() -> str:
    """Name of the GPU for device leases."""
    properties = torch.cuda.get_device_properties(0)
    return gpu_device_name(str(getattr(properties, "uuid", properties.name)))


class DeviceShare:
    """Runs work on a device only while no judge, of this run or another one, times kernels there.

    Args:
        device: `cpu`, which needs no lease, or `cuda`.
        check: called while waiting for the lease; an exception of it ends the wait.
    """

    def __init__(self, device: str, check: Callable[[], None]) -> None:
        self._device = device
        self._check = check
        self._lease: DeviceLease | None = None

    def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, called under a shared device lease; all its kernels have finished on return."""
        if self._device == "cpu":
            return work()
        usable_device(self._device)
        if self._lease is None:
            self._lease = DeviceLease(device_name(), self._check)
        with self._lease.shared():
            try:
                return work()
            finally:
                torch.cuda.synchronize()
