"""The resources that a judge keeps from one evaluation to the next, and how it lends them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import attrs
import torch

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import DeviceLease
from kernelrl_judge.device.facts import device_name, kept_bytes
from kernelrl_judge.device.faults import DeviceFault, DeviceFull
from kernelrl_judge.peer.cancellation import CancelWatch
from kernelrl_judge.peer.main_process import MainProcess
from kernelrl_judge.peer.memory import Arenas
from kernelrl_judge.peer.nursery import Zygotes
from kernelrl_judge.peer.runners import Runners
from kernelrl_judge.protocol.device_memory import DeviceMemoryError, supported
from kernelrl_judge.protocol.failures import lacks_device_memory
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.library import LibraryUnavailable
from kernelrl_judge.replay.library import load as load_library
from kernelrl_judge.task.reference_cache import ReferenceCache

__all__ = ["MEMORY_ERRORS", "Loan", "Resources"]

_OTHERS_SHARE = 0.15
"""Share of a GPU's memory that is more than the contexts of a judge and its runner: other programs hold it."""
_FREE_SHARE = 0.5
"""Share of a GPU's memory that must be free where a runner waits for the next candidate."""
MEMORY_ERRORS = (RuntimeError, DeviceMemoryError)
"""Exceptions by which torch and the driver report missing memory, among other errors."""


@attrs.frozen
class Loan:
    """The resources of one evaluation."""

    zygotes: Zygotes
    references: ReferenceCache
    main_process: MainProcess
    runners: Runners
    has_room: bool
    """Whether the device has memory for the runner of the next candidate."""
    report_slow: Callable[[], None]
    """Called when a candidate on the CPU keeps the judge waiting."""
    leases: DeviceLease | None
    """Leases of the device; None if this judge holds it exclusively for the whole evaluation."""
    arenas: Arenas | None
    """Device memory to share with the runner; None where only host memory can be shared."""
    recorder: Recorder | None
    """Records the reference; None where calls are not recorded."""


class Resources:
    """Zygotes, references, device memory and leases of one judge.

    Args:
        report_slow: called when a candidate on the CPU keeps the judge waiting: another judge could work meanwhile.
        confined: whether the main process takes the leases of devices, because this judge sees no lock files.
    """

    def __init__(
        self,
        zygotes: Zygotes,
        cancel_watch: CancelWatch,
        main_process: MainProcess,
        report_slow: Callable[[], None],
        *,
        confined: bool = False,
    ) -> None:
        self.zygotes = zygotes
        self.runners = Runners(zygotes, cancel_watch)
        self._cancel_watch = cancel_watch
        self._report_slow = report_slow
        self._references = ReferenceCache()
        self._main_process = main_process
        self._confined = confined
        self._leases: dict[str, DeviceLease] = {}
        self._arenas: Arenas | None = None
        self._recorder: Recorder | None = None

    @contextlib.contextmanager
    def lent(self, device: str, *, replays: bool, alone: bool) -> Iterator[Loan]:
        """Lend the resources inside the `with` block.

        Args:
            device: `cuda` or `cpu`.
            replays: whether calls are recorded and replayed.
            alone: hold a GPU exclusively for the whole evaluation.

        Raises:
            MissingPrerequisite: the library that replays cannot be built, or torch has no code for this GPU.
            DeviceFull: the GPU's memory does not suffice. Without `alone`, other evaluations may have taken it.
            DeviceFault: the GPU fails, or other programs have taken its memory.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._device_faults(device, alone=alone))
            stack.callback(self._return_memory, device)
            leases: DeviceLease | None = self._device_leases(device)
            if alone and device == "cuda" and leases is not None:
                stack.enter_context(leases.alone())
                leases = None
            yield Loan(
                zygotes=self.zygotes,
                references=self._references,
                main_process=self._main_process,
                runners=self.runners,
                has_room=device == "cuda" and not alone and _has_room(),
                report_slow=self._report_slow,
                leases=leases,
                arenas=self._shared_arenas(device),
                recorder=self._replay_recorder() if replays else None,
            )

    def leases(self, device: str) -> DeviceLease:
        """New leases of a device.

        Args:
            device: `cuda` or `cpu`.
        """
        name = device_name(device)
        return self._main_process.leases(name) if self._confined else DeviceLease(name, self._cancel_watch.check)

    def close(self) -> None:
        """End runners and zygotes, and free the device memory."""
        self.runners.close()
        self.zygotes.close()
        if self._arenas is not None:
            self._arenas.close()

    def _device_leases(self, device: str) -> DeviceLease:
        if device not in self._leases:
            self._leases[device] = self.leases(device)
        return self._leases[device]

    def _shared_arenas(self, device: str) -> Arenas | None:
        if device == "cuda" and self._arenas is None and supported():
            self._arenas = Arenas()
        return self._arenas if device == "cuda" else None

    def _replay_recorder(self) -> Recorder:
        if self._recorder is None:
            try:
                library = load_library()
            except LibraryUnavailable as error:
                missing, fix = error.args
                raise MissingPrerequisite(missing, fix=fix) from None
            # The device code needs a context.
            torch.zeros(1, device="cuda")
            library.load()
            self._recorder = Recorder(library)
        return self._recorder

    def _return_memory(self, device: str) -> None:
        """Free device memory beyond `kept_bytes`, which other judges need."""
        if self._arenas is not None:
            self._arenas.shrink()
        if device != "cuda":
            return
        limit_bytes = kept_bytes()
        if torch.cuda.memory_reserved() > limit_bytes:
            torch.cuda.empty_cache()
        if torch.cuda.memory_reserved() > limit_bytes:
            self._references.clear()
            torch.cuda.empty_cache()

    def _held_by_others(self) -> int:
        """Bytes of the GPU's memory that this judge, now without a runner, does not hold; 0 if they are few."""
        free, total = torch.cuda.mem_get_info()
        own = torch.cuda.memory_reserved()
        if self._arenas is not None:
            own += self._arenas.size
        held = total - free - own
        return held if held > _OTHERS_SHARE * total else 0

    @contextlib.contextmanager
    def _device_faults(self, device: str, *, alone: bool) -> Iterator[None]:
        """Raise errors of the device in the judge's own process as what they mean."""
        try:
            yield
        except (*MEMORY_ERRORS, MemoryError) as error:
            text = str(error)
            if device == "cuda" and lacks_device_memory(text):
                self.runners.settle()
                if alone and (held := self._held_by_others()):
                    raise DeviceFault(f"other programs hold {held >> 20} MiB of the GPU's memory") from error
                raise DeviceFull("the judge has no device memory left for the reference and its inputs") from error
            if "no kernel image" in text:
                raise MissingPrerequisite(
                    "the installed torch has no code for this GPU",
                    fix="install a torch that is built for its architecture",
                ) from error
            if device == "cuda" and ("CUDA" in text or "cuda" in text or "HIP" in text):
                raise DeviceFault(" ".join(text.split())[:300]) from error
            raise


def _has_room() -> bool:
    free, total = torch.cuda.mem_get_info()
    return free > _FREE_SHARE * total
