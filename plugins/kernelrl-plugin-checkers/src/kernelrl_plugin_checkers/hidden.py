"""Kernels in what a candidate had built and its source does not show: C++ that it puts together while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.api.checkers import Candidate, Evaluation, Outcome
from kernelrl_plugin_checkers.reading import Breach

__all__ = ["hidden_breaches"]

_CALLED = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.HACKED)
"""Outcomes of candidates whose `forward` has come to its end, so that all that it builds is built."""


def hidden_breaches(candidate: Candidate, evaluation: Evaluation) -> Iterator[Breach]:
    """Breaches by what was built. They have no line, because the source does not show it."""
    hidden = evaluation.hidden
    kernels = (*candidate.facts.kernels, *hidden.kernels)
    if (
        (hidden.embedded or hidden.kernels)
        and evaluation.outcome in _CALLED
        and not hidden.unread
        and not any(kernel.reached for kernel in kernels)
    ):
        yield "no_kernel", None, "nothing that was built has a kernel which ModelNew.forward launches"
