"""The device of a model, shared with judges that time kernels on it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import HeldLease
from kernelrl_core.api.policies import DeviceLease, gpu_device_name

__all__ = ["DeviceShare", "free_memory", "memory_error", "usable_device"]

T = TypeVar("T")

_NO_MEMORY = re.compile("can't allocate memory|Cannot allocate memory")
"""Texts of PyTorch's errors when the machine has too little memory; they have no class of their own."""
_LEAST_TURN_S = 0.25
"""Time of long work between two pauses for timed work."""


def usable_device(name: str, dtype: str = "float32") -> torch.device:
    """The device of a name, if it exists and computes in this dtype.

    Raises:
        MissingPrerequisite: PyTorch finds no GPU, or the GPU has no bfloat16.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingPrerequisite(
            "policy.device is cuda, but PyTorch finds no GPU",
            fix="use a machine with a GPU, or set policy.device=cpu",
            see="gpu",
        )
    if name == "cuda" and dtype == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise MissingPrerequisite(
            f"policy.dtype is bfloat16, which {torch.cuda.get_device_name()} does not compute",
            fix="set policy.dtype=float32, or use a GPU of compute capability 8.0 or more",
            see="gpu",
        )
    return torch.device(name)


def free_memory(device: torch.device) -> int:
    """Bytes that a process can still allocate on a device; on the CPU within the limit of its control group, too."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    free = int(facts["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # without a limit the file is missing or has the word `max`
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        free = min(free, limit - used)
    return free


def memory_error(error: BaseException) -> UsageError | None:
    """What to raise for an error if too little memory of the GPU or of the machine caused it; None for another one."""
    if isinstance(error, torch.OutOfMemoryError):
        place, lower = "GPU", "policy.sample_rows, policy.train_tokens or evaluator.gpu_workers"
    elif isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        place, lower = "machine", "policy.sample_rows or policy.train_tokens, or use a smaller model"
    else:
        return None
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return UsageError(
        f"the memory of the {place} is too small for the policy: {reason}", fix=f"lower {lower}", see="out-of-memory"
    )


def device_name() -> str:
    """Name of the GPU for device leases."""
    properties = torch.cuda.get_device_properties(0)
    return gpu_device_name(str(getattr(properties, "uuid", properties.name)))


@contextlib.contextmanager
def _explained_memory() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        explained = memory_error(error)
        if explained is None:
            raise
        raise explained from error


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
        self._held: HeldLease | None = None
        self._pause_from = 0.0
        """Time, of the monotonic clock, before which long work gives way to nothing."""

    def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, called under a shared device lease; all its kernels have finished on return.

        The memory that the work has freed is free for judges on return.
        """
        if self._device == "cpu":
            with _explained_memory():
                return work()
        usable_device(self._device)
        if self._lease is None:
            self._lease = DeviceLease(device_name(), self._check)
        with self._lease.shared() as self._held:
            try:
                with _explained_memory():
                    return work()
            finally:
                self._held = None
                torch.cuda.synchronize()
                # A training step needs many times the memory of a model. Judges need it between two of them.
                torch.cuda.empty_cache()

    def give_way(self) -> None:
        """Let timed work that waits go first. Work that takes long calls it between its parts.

        A timed candidate keeps its judge, and all further candidates of the device, waiting. After a pause the work has
        the device for as long as the pause was, so that it does not starve where kernels are timed all the time.
        """
        held, started = self._held, time.monotonic()
        if held is None or started < self._pause_from or not held.keeps_timed_waiting():
            return
        torch.cuda.synchronize()
        with held.paused():
            pass
        ended = time.monotonic()
        self._pause_from = ended + max(_LEAST_TURN_S, ended - started)
