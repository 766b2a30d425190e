"""One evaluation, from request to verdict, inside the judge."""

from __future__ import annotations

import json
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelrl_core.values import (
    BuildStatus,
    Evaluation,
    EvaluationRequest,
    Finding,
    Isolation,
    Mismatch,
    Outcome,
    Severity,
)
from kernelrl_judge import protocol, wording
from kernelrl_judge.comparing import compare_described, compare_values, tolerance
from kernelrl_judge.protocol import Failure, FrameKind, ProtocolError, Stage
from kernelrl_judge.reference import Reference, load_reference
from kernelrl_judge.running import DeadlinePassed, Runner, RunnerEnded, Zygote, leaves_bytes
from kernelrl_judge.sandbox import isolation_level

__all__ = ["Bench", "Unavailable"]

_CACHED_REFERENCES = 256
_OUTCOMES = {"compile": Outcome.COMPILE_ERROR, "memory": Outcome.OUT_OF_MEMORY, "error": Outcome.RUNTIME_ERROR}


class Unavailable(Exception):
    """This machine lacks what the request asks for; the arguments are what, and the fix."""


class Bench:
    """What a judge keeps between evaluations: zygotes by backend and mode, and loaded references."""

    def __init__(self, cancelled: Callable[[], bool], watch: int) -> None:
        self._cancelled = cancelled
        self._watch = watch
        self._zygotes: dict[tuple[str, str], Zygote] = {}
        self._modules: OrderedDict[str, Any] = OrderedDict()
        self._backends: dict[str, Any] = {}

    def evaluate(self, request: EvaluationRequest, target: str) -> Evaluation:
        """Judge one candidate.

        Args:
            target: `module:attribute` of the backend's runner half.

        Raises:
            TaskError: the task cannot be used.
            Unavailable: a GPU or a timer is missing.
            ZygoteDied, Cancelled: no verdict.
        """
        settings = request.settings
        if settings.timing:
            raise Unavailable("this evaluator does not measure run time yet", "set evaluation.timing to false")
        backend = self._backend(target)
        has_gpu = torch.cuda.is_available()
        mode = backend.mode(request.backend_options, has_gpu)
        if mode == "gpu" and not has_gpu:
            raise Unavailable(f"backend {request.backend} needs a GPU, and there is none", "use a machine with a GPU")
        device = "cuda" if mode == "gpu" else "cpu"
        reference = Reference(self._module(request), request.task_id, settings, request.seed, device)
        zygote = self._zygote(target, backend, mode)
        started = time.monotonic()
        with Runner(
            zygote,
            memory_mib=settings.memory_mib,
            deadline=started + settings.timeout_s,
            cancelled=self._cancelled,
            watch=self._watch,
        ) as runner:
            case = _Case(request, reference, runner, device)
            evaluation = case.judge()
        seconds = {"build": case.built_after_s or 0.0, "run": time.monotonic() - started - (case.built_after_s or 0.0)}
        provenance = {**self._machine(mode, has_gpu), "task_sha256": request.task_sha256, "device": device}
        return wording.finish(evaluation, printed=runner.printed, seconds=seconds, provenance=provenance)

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def _backend(self, target: str) -> Any:
        if target not in self._backends:
            import importlib

            module, _, attribute = target.partition(":")
            self._backends[target] = getattr(importlib.import_module(module), attribute)()
        return self._backends[target]

    def _module(self, request: EvaluationRequest) -> Any:
        module = self._modules.pop(request.task_sha256, None)
        if module is None:
            module = load_reference(request.task_source, request.task_id)
        self._modules[request.task_sha256] = module
        while len(self._modules) > _CACHED_REFERENCES:
            self._modules.popitem(last=False)
        return module

    def _zygote(self, target: str, backend: Any, mode: str) -> Zygote:
        zygote = self._zygotes.get((target, mode))
        if zygote is None or not zygote.alive:
            zygote = Zygote(target, mode, backend.environment(mode))
            self._zygotes[(target, mode)] = zygote
        return zygote

    def _machine(self, mode: str, has_gpu: bool) -> Mapping[str, Any]:
        found = {
            "mode": mode,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
        }
        if mode == "gpu" and has_gpu:
            found["gpu"] = torch.cuda.get_device_name()
            found["cuda"] = str(torch.version.cuda)
        return found


class _Case:
    """One candidate before the judge."""

    def __init__(self, request: EvaluationRequest, reference: Reference, runner: Runner, device: str) -> None:
        self._request = request
        self._reference = reference
        self._runner = runner
        self._device = device
        self._started = time.monotonic()
        self._build = BuildStatus.NOT_REACHED
        self._passed = 0
        self._isolation = Isolation()
        self._profile: dict[str, Any] = {}
        self.built_after_s: float | None = None

    def judge(self) -> Evaluation:
        try:
            return self._judge()
        except DeadlinePassed:
            limit = self._request.settings.timeout_s
            return self._end(Outcome.TIMEOUT, wording.timeout(limit))
        except RunnerEnded as ending:
            return self._end(*wording.ended(str(ending)))
        except ProtocolError as error:
            finding = Finding("protocol", Severity.HACK, f"forged or malformed answer: {error}", checker="judge")
            return self._end(Outcome.HACKED, wording.forged(), findings=(finding,))

    def _judge(self) -> Evaluation:
        runner, reference = self._runner, self._reference
        missing = [str(layer) for layer in protocol.decode_tree(self._expect(FrameKind.STARTED).body)]
        self._isolation = Isolation(isolation_level(missing), tuple(missing))
        source = self._request.source.encode("utf-8", "surrogatepass")
        shared = runner.share(
            {"arguments": reference.arguments, "keywords": reference.keywords, "state": reference.state}, source
        )
        order = {
            **shared,
            "source_offset": 0,
            "source_bytes": len(source),
            "options": json.dumps(dict(self._request.backend_options)),
            "dtype": str(reference.dtype).removeprefix("torch."),
            "init_seed": reference.init_seed,
        }
        runner.send(FrameKind.LOAD, protocol.encode_tree(order))
        frame = self._expect(FrameKind.LOADED)
        if frame.kind is FrameKind.FAILED:
            self._build = BuildStatus.FAILED
            return self._failed(protocol.decode_failure(frame.body))
        self._build = BuildStatus.BUILT
        self.built_after_s = time.monotonic() - self._started
        frame = self._expect(FrameKind.READY)
        if frame.kind is FrameKind.FAILED:
            return self._failed(protocol.decode_failure(frame.body))
        self._profile["parameters"] = wording.parameters(protocol.decode_tree(frame.body), len(reference.state))
        return self._trials()

    def _trials(self) -> Evaluation:
        runner, limit = self._runner, tolerance(self._request.settings)
        worst: Mismatch | None = None
        for index in range(self._request.settings.trials):
            trial = self._reference.trial(index)
            runner.make_room(leaves_bytes(trial.expected))
            runner.send(FrameKind.CALL, protocol.encode_tree({"arguments": runner.share(trial.inputs)}))
            frame = self._expect(FrameKind.RESULT)
            if frame.kind is FrameKind.FAILED:
                return self._failed(protocol.decode_failure(frame.body))
            described = protocol.decode_tree(frame.body)
            wrong = compare_described(trial.expected, described, self._device)
            if wrong is not None:
                # Structure does not change from trial to trial: there is nothing more to learn.
                return self._end(Outcome.INCORRECT, wording.incorrect(wrong), mismatch=wrong)
            wrong = compare_values(trial.expected, runner.collect(trial.expected, described), limit)
            if wrong is None:
                self._passed += 1
            elif worst is None:
                worst = wrong
        if worst is not None:
            return self._end(Outcome.INCORRECT, wording.incorrect(worst), mismatch=worst)
        return self._end(Outcome.CORRECT, "")

    def _expect(self, kind: FrameKind) -> protocol.Frame:
        frame = self._runner.receive()
        if frame.kind is not kind and (frame.kind is not FrameKind.FAILED or kind is FrameKind.STARTED):
            raise ProtocolError(f"{frame.kind.name} in the place of {kind.name}")
        return frame

    def _failed(self, failure: Failure) -> Evaluation:
        if failure.stage is Stage.EXPORT and failure.kind == "error":
            wrong = Mismatch("structure", "", expected="tensors", actual=failure.text.partition(": ")[2][:200])
            return self._end(Outcome.INCORRECT, wording.incorrect(wrong), detail=failure.text, mismatch=wrong)
        outcome = _OUTCOMES.get(failure.kind, Outcome.RUNTIME_ERROR)
        if failure.stage is Stage.LOAD and outcome is Outcome.RUNTIME_ERROR:
            outcome = Outcome.COMPILE_ERROR
        return self._end(outcome, wording.failure(failure), detail=failure.text)

    def _end(
        self,
        outcome: Outcome,
        message: str,
        *,
        detail: str = "",
        mismatch: Mismatch | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> Evaluation:
        return Evaluation(
            outcome,
            message,
            detail,
            build=self._build,
            tests_passed=self._passed,
            tests_total=self._request.settings.trials,
            mismatch=mismatch,
            findings=findings,
            profile=self._profile,
            isolation=self._isolation,
        )
