"""The result of one kernel that no policy wrote, and the object that `kernelrl check --json` prints."""

from __future__ import annotations

from typing import Any

import attrs

from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.types import Score, Turn
from kernelrl_core.types.serialization import to_json

__all__ = ["CheckedKernel", "why_no_speedup"]


@attrs.frozen
class CheckedKernel:
    """The result of one kernel file."""

    name: str
    """File as given, or `-`."""
    turn: Turn
    """The judged turn: candidate, evaluation, findings and verdict."""
    wall_s: float
    """Seconds from the start of the command, or from the change of the file, to the result."""
    score: Score | None = None
    """By the rewards of the recipe; None: no recipe is given."""

    @property
    def cached(self) -> bool:
        """Whether the evaluation is from the evaluation cache."""
        evaluation = self.turn.evaluation
        return evaluation is not None and bool(evaluation.provenance.get("cached"))

    def seconds(self) -> dict[str, float]:
        """Durations in seconds, which add up to `wall_s`: those of the evaluator, `check` for the checkers, and `wait`
        for the rest: reading the task, start of the evaluator, queue."""
        evaluation = self.turn.evaluation
        spent = dict(evaluation.seconds) if evaluation is not None and not self.cached else {}
        spent["check"] = spent.get("check", 0.0) + self.turn.seconds.get("check", 0.0)
        return spent | {"wait": max(0.0, self.wall_s - sum(spent.values()))}

    def row(self, spec: EvaluationSpec, untimed: str) -> dict[str, Any]:
        """The object that `kernelrl check --json` prints.

        Args:
            spec: the specification of the evaluation.
            untimed: the reason why the kernel was not timed; empty if it was.
        """
        turn = self.turn
        evaluation = turn.evaluation
        described = to_json(evaluation) if evaluation is not None else {}
        return {
            "task": turn.task.id,
            "kernel": self.name,
            "kernel_sha256": turn.candidate.sha256 if turn.candidate is not None else None,
            "backend": spec.backend.use,
            "evaluator": spec.evaluator.use,
            "outcome": turn.outcome.value,
            "verdict": turn.verdict.value,
            "compiled": evaluation is not None and evaluation.compiled,
            "correct": turn.correct,
            "score": to_json(self.score) if self.score is not None else None,
            "tests_passed": described.get("tests_passed", 0),
            "tests_total": described.get("tests_total", 0),
            "cast": described.get("facts", {}).get("cast") or None,
            "dtypes": described.get("facts", {}).get("dtypes"),
            "runtime_us": evaluation.runtime.median_us if evaluation is not None and evaluation.runtime else None,
            "baseline_us": evaluation.baseline.median_us if evaluation is not None and evaluation.baseline else None,
            "speedup": turn.speedup,
            "speedup_ci": described.get("speedup_ci") if turn.correct else None,
            "findings": [to_json(finding) for finding in turn.findings],
            "mismatch": described.get("mismatch"),
            "message": turn.message,
            "isolation": described.get("isolation"),
            "provenance": described.get("provenance", {}),
            "seconds": {phase: round(seconds, 4) for phase, seconds in self.seconds().items()},
            "reasons": {} if turn.speedup is not None else {"speedup": why_no_speedup(turn, untimed)},
        }


def why_no_speedup(turn: Turn, untimed: str) -> str:
    """The reason why a turn has no speedup.

    Args:
        untimed: the reason why the kernel was not timed, where that is known before its evaluation; else empty.
    """
    if not turn.correct:
        return f"only a correct kernel is timed; the outcome is {turn.outcome.value}"
    if turn.evaluation is not None and turn.evaluation.not_timed:
        return turn.evaluation.not_timed
    return untimed or "a finding ended the evaluation before the kernel was timed"
