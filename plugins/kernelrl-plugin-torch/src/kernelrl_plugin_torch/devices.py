"""The device a model runs on, and sharing it with judges that time kernels there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.policies import DeviceLease, gpu_device_name

__all__ = ["DeviceShare", "usable_device"]

T = TypeVar("T")


def usable_device(name: str) -> torch.device:
    """A device that is there.

    Raises:
        MissingPrerequisite: PyTorch finds no GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingPrerequisite(
            "policy.device is cuda, and PyTorch finds no GPU", fix="use a machine with a GPU, or set policy.device=cpu"
        )
    return torch.device(name)


def device_name() -> str:
    """Name of the GPU for its leases."""
    properties = torch.cuda.get_device_properties(0)
    return gpu_device_name(str(getattr(properties, "uuid", properties.name)))


class DeviceShare:
    """Work on a device between the timed sections of judges on the same device, of this run or another one.

    Args:
        device: `cpu`, where nobody is waited for, or `cuda`.
        check: called while waiting; what it raises ends the wait.
    """

    def __init__(self, device: str, check: Callable[[], None]) -> None:
        self._device = device
        self._check = check
        self._lease: DeviceLease | None = None

    def do(self, work: Callable[[], T]) -> T:
        """Do a piece of work while nothing is timed; its last kernel has ended when this returns."""
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
