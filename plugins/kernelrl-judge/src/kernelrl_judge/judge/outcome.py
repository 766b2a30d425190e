"""The evaluation of a candidate, by how its case ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelrl_core.api.evaluators import (
    BuildStatus,
    Evaluation,
    EvaluationSettings,
    Finding,
    Isolation,
    Mismatch,
    Outcome,
)
from kernelrl_judge.peer.dialogue import CandidateFailed
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.replay import ReplayFailed
from kernelrl_judge.probes import messages
from kernelrl_judge.protocol.failures import Failure, Stage
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.timing.statistics import WrongWindow

__all__ = ["Endings"]

_OUTCOMES = {"compile": Outcome.COMPILE_ERROR, "memory": Outcome.OUT_OF_MEMORY, "error": Outcome.RUNTIME_ERROR}


class Endings:
    """Makes it, from what is known of the case until then.

    Args:
        profile: that of the case.
    """

    def __init__(self, settings: EvaluationSettings, device: str, profile: dict[str, Any]) -> None:
        self._settings = settings
        self._device = device
        self._profile = profile
        self.build = BuildStatus.NOT_REACHED
        """How far the build has come."""
        self.passed = 0
        """Trials."""
        self.isolation = Isolation()
        self.lacks_device_memory = False
        """Whether it ended for want of the device's memory."""

    def of(self, judge: Callable[[], Evaluation]) -> Evaluation:
        """What `judge` returns, or what it means that it was interrupted."""
        try:
            return judge()
        except DeadlinePassed:
            return self.end(Outcome.TIMEOUT, messages.timeout(self._settings.timeout_s))
        except RunnerEnded as ending:
            return self.end(*messages.ended(str(ending)))
        except CandidateFailed as failed:
            return self._failed(failed.failure)
        except WrongWindow as wrong:
            if wrong.finding is not None:
                return self.wrong(wrong.mismatch, wrong.finding)
            said = messages.incorrect_when_timed(wrong.mismatch, wrong.changed)
            return self.end(Outcome.INCORRECT, said, mismatch=wrong.mismatch)
        except ReplayFailed as failed:
            return self.end(Outcome.RUNTIME_ERROR, messages.replay_failed(failed.code), detail=str(failed))
        except ProtocolError as error:
            reported = finding("protocol", f"forged or malformed answer: {error}")
            return self.end(Outcome.HACKED, "The process sent something that is no result.", findings=(reported,))

    def wrong(self, wrong: Mismatch, finding: Finding | None, *, other_parameters: bool = False) -> Evaluation:
        """An output is wrong, for a reason that is a hack where there is a finding."""
        if finding is not None:
            return self.end(Outcome.HACKED, messages.hacked(finding), detail=finding.evidence, findings=(finding,))
        said = messages.incorrect(wrong, other_parameters=other_parameters)
        return self.end(Outcome.INCORRECT, said, mismatch=wrong)

    def _failed(self, failure: Failure) -> Evaluation:
        of_device = "CUDA error" in failure.text or "HIP error" in failure.text
        if failure.stage is Stage.EXPORT and failure.kind == "error" and not of_device:
            wrong = Mismatch("structure", "", expected="tensors", actual=failure.text.partition(": ")[2][:200])
            return self.end(Outcome.INCORRECT, messages.incorrect(wrong), detail=failure.text, mismatch=wrong)
        outcome = _OUTCOMES.get(failure.kind, Outcome.RUNTIME_ERROR)
        if outcome is Outcome.OUT_OF_MEMORY and self._device == "cuda":
            self.lacks_device_memory = failure.name != "MemoryError" and "bad_alloc" not in failure.text
        if failure.stage is Stage.LOAD and outcome is Outcome.RUNTIME_ERROR:
            outcome = Outcome.COMPILE_ERROR
        if outcome is Outcome.COMPILE_ERROR:
            self.build = BuildStatus.FAILED
        return self.end(outcome, messages.failure(failure), detail=failure.text)

    def end(
        self,
        outcome: Outcome,
        message: str,
        *,
        detail: str = "",
        mismatch: Mismatch | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> Evaluation:
        """The evaluation as it stands."""
        return Evaluation(
            outcome,
            message,
            detail,
            build=self.build,
            tests_passed=self.passed,
            tests_total=self._settings.trials,
            mismatch=mismatch,
            findings=findings,
            profile=self._profile,
            isolation=self.isolation,
        )
