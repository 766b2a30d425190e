"""Kernels in built sources that the candidate's source does not contain: C++ that it makes at run time."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.api.checkers import Candidate, Evaluation, Outcome
from kernelrl_plugin_checkers.reading import Breach

__all__ = ["hidden_breaches"]

_CALLED = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.HACKED)
"""Outcomes of candidates whose `forward` has returned, so that all of its builds are known."""


def hidden_breaches(candidate: Candidate, evaluation: Evaluation) -> Iterator[Breach]:
    """Breaches by built sources. They have no line, because the candidate's source does not contain them."""
    hidden = evaluation.hidden
    kernels = (*candidate.facts.kernels, *hidden.kernels)
    if (
        (hidden.embedded or hidden.kernels)
        and evaluation.outcome in _CALLED
        and not hidden.unread
        and not any(kernel.reached for kernel in kernels)
    ):
        yield "no_kernel", None, "nothing that was built has a kernel which ModelNew.forward launches"
