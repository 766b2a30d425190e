"""Calls of a slow reference that fit into the time of an evaluation."""

from __future__ import annotations

import time

import attrs
import torch

from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["ReferenceBudget", "call_seconds"]

_WARM_S = 0.05
"""A first call that takes longer may have prepared something, so that a second one is measured."""
_CALLS_OF_FAMILY = 5
"""Calls of the reference for one family of harder inputs, in its own and in double precision."""
_STRESS_SHARE = 0.5
_COVERAGE_SHARE = 0.25
"""Shares of the time limit for calls of the reference."""


@attrs.frozen
class ReferenceBudget:
    """Numbers of calls of the reference within `evaluation.timeout_s`."""

    families: int
    """Families of harder inputs."""
    regions: int
    """Regions of the inputs whose effect is measured."""

    @classmethod
    def of(cls, reference: Reference) -> ReferenceBudget:
        """The budget for a reference.

        Raises:
            TaskError: the trials alone take longer.
        """
        settings = reference.settings
        limit_s = settings.timeout_s
        call_s = max(call_seconds(reference), 1e-9)
        if call_s * settings.trials > limit_s:
            raise TaskError(
                f"task {reference.task_id}: one call of the reference takes {call_s:.3g} s, so that "
                f"{settings.trials} trials take longer than evaluation.timeout_s ({limit_s:g} s): make its sizes "
                "smaller, write it without Python loops, or set evaluation.timeout_s higher"
            )
        return cls(
            families=int(_STRESS_SHARE * limit_s / (_CALLS_OF_FAMILY * call_s)),
            regions=int(_COVERAGE_SHARE * limit_s / call_s),
        )


def call_seconds(reference: Reference) -> float:
    """Wall time of one call of the reference, measured once for a task."""
    facts = reference.facts
    if facts.call_s is None:
        inputs = reference.inputs(LEARNED)
        facts.call_s = _call_s(reference, inputs)
        if facts.call_s > _WARM_S:
            facts.call_s = _call_s(reference, inputs)
    return facts.call_s


def _call_s(reference: Reference, inputs: list[object]) -> float:
    started = time.monotonic()
    reference.expected(inputs, LEARNED)
    if reference.device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - started
