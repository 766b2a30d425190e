"""Phrases shared by the formatters."""

from __future__ import annotations

from kernelrl_core.api.feedback import Outcome, Turn

__all__ = ["CANDIDATE_FILE", "OUTCOMES", "describe_dtypes", "number", "tests"]

CANDIDATE_FILE = "candidate.py"
"""File name of a candidate in tracebacks."""

OUTCOMES = {
    Outcome.FORMAT_ERROR: "format error",
    Outcome.REJECTED: "rejected",
    Outcome.COMPILE_ERROR: "compile error",
    Outcome.RUNTIME_ERROR: "runtime error",
    Outcome.TIMEOUT: "timeout",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.INCORRECT: "incorrect output",
    Outcome.HACKED: "not accepted",
    Outcome.CORRECT: "correct",
    Outcome.INFRA_ERROR: "not evaluated",
}


def tests(turn: Turn) -> str:
    """Trials passed as `x/y`; empty where none was executed, or where the count has no meaning."""
    evaluation = turn.evaluation
    if evaluation is None or not evaluation.tests_total or turn.outcome is Outcome.HACKED:
        return ""
    return f"{evaluation.tests_passed}/{evaluation.tests_total}"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def describe_dtypes(turn: Turn) -> str:
    """The dtypes of the task as they were used, for a kernel whose call failed.

    Empty if all floating-point ones are float32 without a cast.
    """
    if turn.evaluation is None or turn.outcome not in {Outcome.INCORRECT, Outcome.RUNTIME_ERROR}:
        return ""
    facts = turn.evaluation.facts
    sentences = []
    if facts.dtypes is not None and not facts.dtypes.are_usual:
        sentences.append(f"Dtypes: {facts.dtypes}.")
    if facts.cast:
        sentences.append(f"Floating-point inputs and parameters were cast to {facts.cast}.")
    return " ".join(sentences)
