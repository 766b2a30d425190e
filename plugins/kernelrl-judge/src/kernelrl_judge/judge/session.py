"""What a judge keeps from one evaluation to the next: zygotes, references, device memory, turns on the device."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import CompiledKernel, DeviceLease, Evaluation, EvaluationRequest
from kernelrl_judge.build.lexing import Unreadable
from kernelrl_judge.build.service import BuildService, BuildUnavailable
from kernelrl_judge.judge.case import Case
from kernelrl_judge.peer import device_facts
from kernelrl_judge.peer.dialogue import patience_s
from kernelrl_judge.peer.memory import ArenaExchange, Arenas, Exchange
from kernelrl_judge.peer.nursery import Setting, ZygoteDied, Zygotes
from kernelrl_judge.peer.process import Cancelled, Runner
from kernelrl_judge.peer.replay import NotRecorded
from kernelrl_judge.probes import messages
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.failures import lacks_device_memory
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.library import Library, LibraryUnavailable, load
from kernelrl_judge.runner.backend import UNTIMED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import load_reference

__all__ = ["Bench", "DeviceFault", "DeviceFull", "Unavailable"]

_CACHED_MODULES = 256
_CACHED_REFERENCES = 2
_INPUTS_SHARE = 32
_OTHERS_SHARE = 0.15
"""Of a GPU's memory: more than the contexts of a judge and its runner. Who takes more of it is another program."""
_MEMORY_ERRORS = (RuntimeError, DeviceMemoryError)


class Unavailable(Exception):
    """This machine lacks what the request asks for; the arguments are what, and the fix."""


class DeviceFault(Exception):
    """The device fails the judge itself."""


class DeviceFull(DeviceFault):
    """The device's memory does not suffice for the judge itself."""


class Bench:
    """What a judge keeps between evaluations: zygotes by backend and mode, loaded references, device memory.

    Args:
        cancelled: whether nobody waits for the evaluation any more.
        watch: descriptor that becomes readable when that may be so.
        slow: called when a candidate on the processor keeps the judge waiting: another judge could work meanwhile.
    """

    def __init__(self, zygotes: Zygotes, cancelled: Callable[[], bool], watch: int, slow: Callable[[], None]) -> None:
        self._cancelled = cancelled
        self._slow = slow
        self._watch = watch
        self._zygotes = zygotes
        self._modules: OrderedDict[str, Any] = OrderedDict()
        self._references: OrderedDict[tuple[str, ...], Reference] = OrderedDict()
        self._turns: dict[str, DeviceLease] = {}
        self._arenas: Arenas | None = None
        self._replay: tuple[Library, Recorder] | None = None
        self._builds = BuildService(cache_directory() / "builds")

    def evaluate(self, request: EvaluationRequest, target: str, *, alone: bool = False) -> Evaluation:
        """Judge one candidate.

        Args:
            target: `module:attribute` of the backend's runner half.
            alone: no other evaluation of this evaluator is under way; those of others wait.

        Raises:
            TaskError: the task cannot be used.
            Unavailable: a GPU, a compiler or a clock is missing.
            DeviceFull: the GPU's memory does not suffice. Without `alone`, other evaluations may have taken it.
            DeviceFault: the GPU fails, or other programs have taken its memory.
            ZygoteDied, Cancelled: no verdict.
        """
        has_gpu = torch.cuda.is_available()
        setting = self._zygotes.setting(target, request.backend_options, has_gpu)
        mode, device = setting.mode, setting.device
        if mode == "gpu" and not has_gpu:
            why, fix = device_facts.no_gpu()
            raise Unavailable(f"backend {request.backend} needs a GPU: {why}", fix)
        if request.settings.timing and mode in UNTIMED:
            raise Unavailable(
                f"backend {request.backend} cannot be timed here: {UNTIMED[mode]}",
                "set evaluation.timing=false, or use a machine with a GPU",
            )
        torch.set_num_threads(int(setting.environment["OMP_NUM_THREADS"]))
        with self._device_faults(device, alone), self._gives_back(device):
            turns = self._device_turns(device)
            if alone and device == "cuda":
                with turns.alone():
                    evaluation, _ = self._recorded_or_eager(request, setting, None)
            else:
                evaluation, lacks_device_memory = self._recorded_or_eager(request, setting, turns)
                if lacks_device_memory:
                    raise DeviceFull("the candidate has too little device memory")
            if not alone and evaluation.message == messages.KILLED:
                # The machine kills processes where it lacks memory.
                raise ZygoteDied(evaluation.message)
            if "device_kernels" in evaluation.profile:
                return evaluation
            from kernelrl_judge.probes import no_op

            reason = no_op.why_not(request, evaluation, setting.backend, mode)
            if reason:
                return attrs.evolve(evaluation, profile={**evaluation.profile, "no_op": f"not tried: {reason}"})
            return evaluation if reason == "" else self._without_kernels(request, evaluation, setting, turns)

    def close(self) -> None:
        self._zygotes.close()
        if self._arenas is not None:
            self._arenas.close()

    def _judged(
        self,
        request: EvaluationRequest,
        setting: Setting,
        turns: DeviceLease | None,
        *,
        disabled: bool = False,
        records: bool = True,
    ) -> tuple[Evaluation, bool]:
        """One candidate in a runner of its own, and whether the device's memory did not suffice.

        Args:
            turns: None if the device is already this judge's alone.
            disabled: let the candidate's kernels do nothing.
            records: judge by replays, where the settings ask for that.

        Raises:
            NotRecorded: it cannot be judged by replays.
        """
        device = setting.device
        with Runner(
            self._zygotes.zygote(setting),
            memory_mib=request.settings.memory_mib,
            limit_s=request.settings.timeout_s,
            patience_s=patience_s(request.settings.timing, device),
            # Memory of a device must be free for the next one; hundreds of processes that end slowly disturb nobody.
            end_s=10.0 if device == "cuda" else 0.5,
            slow=lambda: case.slow(),
            cancelled=self._cancelled,
            watch=self._watch,
        ) as runner:
            case = Case(request, runner, self, setting, turns, self._slow, disabled=disabled, records=records)
            evaluation = case.judge()
        provenance = {
            **device_facts.machine_facts(device),
            "mode": setting.mode,
            "device": device,
            "task_sha256": request.task_sha256,
            **case.provenance,
        }
        found = messages.finish(evaluation, printed=runner.printed, seconds=case.seconds(), provenance=provenance)
        facts = dict(found.profile)
        typed = {name: facts.pop(name, None) for name in ("own_kernel_share", "eager_speedup")}
        kernels = tuple(CompiledKernel(**kernel) for kernel in facts.pop("kernels", ()))
        return attrs.evolve(found, profile=facts, kernels=kernels, **typed), case.lacks_device_memory

    def _recorded_or_eager(
        self, request: EvaluationRequest, setting: Setting, turns: DeviceLease | None
    ) -> tuple[Evaluation, bool]:
        """As `_judged`; from eager calls, where calls cannot be recorded.

        A candidate is not timed then. If the reference cannot be recorded, both sides are timed eagerly.

        Raises:
            DeviceMemoryError: a recording needs more memory than others leave.
        """
        try:
            return self._judged(request, setting, turns)
        except NotRecorded as error:
            if error.lacks_memory and turns is not None:
                raise DeviceMemoryError(f"{error.reason} (out of memory)") from error
            why = error
        timing = request.settings.timing and why.of_reference
        asked = attrs.evolve(request, settings=attrs.evolve(request.settings, timing=timing))
        evaluation, again = self._judged(asked, setting, turns, records=False)
        if why.of_reference:
            return attrs.evolve(evaluation, profile={**evaluation.profile, "timing_is_eager": why.reason}), again
        place = f"candidate.py:{why.line}: " if why.line else ""
        reported = finding("not_recorded", f"{place}{why.reason}")
        not_timed = f"not_recorded: {reported.evidence}" if request.settings.timing and evaluation.correct else ""
        return attrs.evolve(evaluation, not_timed=not_timed, findings=(*evaluation.findings, reported)), again

    def _without_kernels(
        self, request: EvaluationRequest, evaluation: Evaluation, setting: Setting, turns: DeviceLease
    ) -> Evaluation:
        """The verdict after the probe `no_op`."""
        from kernelrl_judge.probes import no_op

        started = time.monotonic()
        asked = no_op.probe_request(request)
        try:
            without, _ = self._judged(asked, setting, turns, disabled=True)
            trial = self.reference(asked, setting.device).trial(0)
        except (Unreadable, *_MEMORY_ERRORS) as error:
            why = str(error)
            if not isinstance(error, Unreadable):
                if setting.device != "cuda" or not lacks_device_memory(str(error)):
                    raise
                why = "the device has no memory left"
            return attrs.evolve(evaluation, profile={**evaluation.profile, "no_op": f"not tried: {why}"})
        found = no_op.concluded(request, evaluation, without, trial)
        return attrs.evolve(found, seconds={**found.seconds, "no_op": time.monotonic() - started})

    # --- what cases use ---------------------------------------------------------------------------------------------

    def replay(self, request: EvaluationRequest, device: str) -> tuple[Library, Recorder] | None:
        """The library that replays and the recorder of references, where the settings ask for replays.

        Raises:
            Unavailable: the library cannot be built.
        """
        if device != "cuda" or torch.version.hip or request.settings.timing_method != "replay":
            return None
        if self._replay is None:
            try:
                library = load()
            except LibraryUnavailable as error:
                raise Unavailable(*error.args) from None
            torch.zeros(1, device=device)
            library.load()
            self._replay = library, Recorder(library)
        return self._replay

    def reference(self, request: EvaluationRequest, device: str) -> Reference:
        """The reference of a request, under its seed."""
        settings = request.settings
        key = (
            *(request.task_sha256, settings.precision, settings.profile, settings.input_overlay),
            *(device, str(settings.fit_memory)),
        )
        found = self._references.pop(key, None)
        if found is None:
            while len(self._references) >= _CACHED_REFERENCES:
                self._references.popitem(last=False)
            if device == "cuda":
                torch.cuda.empty_cache()
            found = Reference(self._module(request, device), request.task_id, settings, device)
        self._references[key] = found
        return found.under(request.seed)

    def exchange(self, runner: Runner, device: str) -> Exchange:
        """Memory to share with a runner: the device's where it can be shared, otherwise the host's."""
        if device != "cuda":
            return runner.files
        if self._arenas is None:
            from kernelrl_judge.protocol.device_memory import supported

            if not supported():
                return runner.files
            self._arenas = Arenas()
        self._arenas.clear()

        def attach(arenas: Arenas) -> None:
            descriptors = [arenas.inputs.export(), arenas.outputs.export()]
            try:
                sizes = {"inputs": arenas.inputs.size, "outputs": arenas.outputs.size}
                runner.send(FrameKind.ATTACH, encode_tree(sizes), descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

        return ArenaExchange(self._arenas, attach)

    def build(
        self, asked: bytes, setting: Setting, request: EvaluationRequest, *, disabled: bool = False
    ) -> tuple[bytes, list[int]]:
        """Answer of the build service to a candidate, and a descriptor of what was built.

        Args:
            disabled: build kernels that do nothing; raises `Unreadable` where that is not certain.
        """
        spec = setting.backend.toolchain(request.backend_options, setting.mode)
        if spec is None:
            raise ProtocolError(f"an order for a build, which candidates of backend {request.backend} have no use for")
        settings, cancelled = request.settings, self._cancelled
        try:
            return self._builds.answer(
                asked, spec, settings, cancelled=cancelled, source=request.source, disabled=disabled
            )
        except BuildUnavailable as error:
            raise Unavailable(*error.args) from None

    def _module(self, request: EvaluationRequest, device: str) -> Any:
        key = f"{request.task_sha256} {device}" if request.settings.fit_memory else request.task_sha256
        module = self._modules.pop(key, None)
        if module is None:
            budget = device_facts.memory_bytes(device) // _INPUTS_SHARE if request.settings.fit_memory else None
            module = load_reference(request.task_source, request.task_id, budget)
        self._modules[key] = module
        while len(self._modules) > _CACHED_MODULES:
            self._modules.popitem(last=False)
        return module

    def _device_turns(self, device: str) -> DeviceLease:
        if device not in self._turns:
            self._turns[device] = DeviceLease(device_facts.device_name(device), self._check_cancelled)
        return self._turns[device]

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise Cancelled

    def _held_by_others(self) -> int:
        """Bytes of the GPU's memory that this judge, now without a runner, does not hold; 0 if they are few."""
        free, total = torch.cuda.mem_get_info()
        own = torch.cuda.memory_reserved()
        if self._arenas is not None:
            own += self._arenas.inputs.size + self._arenas.outputs.size
        held = total - free - own
        return held if held > _OTHERS_SHARE * total else 0

    @contextlib.contextmanager
    def _gives_back(self, device: str) -> Iterator[None]:
        """Afterwards keep no more of a device's memory than a share: other judges use it, too."""
        try:
            yield
        finally:
            if self._arenas is not None:
                self._arenas.shrink()
            if device == "cuda":
                most = device_facts.kept_bytes()
                if torch.cuda.memory_reserved() > most:
                    torch.cuda.empty_cache()
                if torch.cuda.memory_reserved() > most:
                    self._references.clear()
                    torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _device_faults(self, device: str, alone: bool) -> Iterator[None]:
        """An error of the device in the judge's own process is the device's."""
        try:
            yield
        except (*_MEMORY_ERRORS, MemoryError) as error:
            text = str(error)
            if device == "cuda" and lacks_device_memory(text):
                if alone and (held := self._held_by_others()):
                    raise DeviceFault(f"other programs hold {held >> 20} MiB of the GPU's memory") from error
                raise DeviceFull("the judge has no device memory left for the reference and its inputs") from error
            if "no kernel image" in text:
                raise Unavailable(
                    "the installed torch has no code for this GPU", "install a torch that is built for its architecture"
                ) from error
            if device == "cuda" and ("CUDA" in text or "cuda" in text or "HIP" in text):
                raise DeviceFault(" ".join(text.split())[:300]) from error
            raise
