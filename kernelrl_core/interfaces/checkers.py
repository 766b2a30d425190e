"""Checkers: report findings of reward hacking from the source or the evaluation of a candidate.

The core calls `check` with `evaluation=None` before the candidate is built, and again with the evaluation. A finding
names one of the checker's rules; the worst severity of a turn's findings is its verdict. `rules` lists every rule that
`check` can report, as `Rule` objects; the recipe key `forbid` turns one of them into a stated rule.

`kernelrl plugins new checkers NAME` writes a sample plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.evaluations import Evaluation
from kernelrl_core.types.outcomes import Finding, Rule
from kernelrl_core.types.replies import Candidate
from kernelrl_core.types.tasks import Task

__all__ = ["Checker", "CheckerConfig"]


@attrs.frozen
class CheckerConfig(ComponentConfig):
    """Options of a checker."""


class Checker(ABC):
    """Reports findings of reward hacking. Pure."""

    rules: Sequence[Rule]
    """Every rule that `check` can report. A recipe's `forbid` turns one of them into a stated rule."""

    @abstractmethod
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings of one candidate; empty: none. Called in a worker thread, one call at a time.

        An exception does not end the run: it becomes the finding `checker_failed` (note), as does a finding of a rule
        that `rules` does not declare. Both count in the metric `checker_failed_rate`.

        Args:
            candidate: with `facts`, the analysis of the source by its backend.
            evaluation: None in the first call, before the candidate is built. A second call follows with the
                evaluation, unless a stated rule already rejected the candidate.
        """
