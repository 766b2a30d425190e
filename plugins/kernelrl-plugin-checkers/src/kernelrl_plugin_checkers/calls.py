"""Candidates whose calls launched no kernel of their own, by what ran, or by the built sources if that is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.api.checkers import Candidate, Evaluation, Outcome
from kernelrl_plugin_checkers.reading import Breach

__all__ = ["breaches_of_calls"]

_CALLED = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.HACKED)
"""Outcomes of candidates whose `forward` has returned, so that all of its builds are known."""


def breaches_of_calls(candidate: Candidate, evaluation: Evaluation) -> Iterator[Breach]:
    """Breaches by what ran. They have no line."""
    if evaluation.outcome not in _CALLED:
        return
    launches = evaluation.facts.launches
    if launches is not None:
        # A hack must not become `rejected`, which is the better outcome.
        if not launches and evaluation.outcome is not Outcome.HACKED:
            yield "no_kernel", None, "no call launched a kernel of the candidate"
        return
    hidden = evaluation.hidden
    if candidate.facts.unread and not (hidden.embedded or hidden.kernels):
        return
    kernels = (*candidate.facts.kernels, *hidden.kernels)
    if not hidden.unread and not any(kernel.reached for kernel in kernels):
        yield "no_kernel", None, "nothing that was built has a kernel which ModelNew.forward launches"
