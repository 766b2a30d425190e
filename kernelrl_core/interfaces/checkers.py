"""Checkers: findings of reward hacking, from source or evaluation.

A finding names one of the checker's rules. Its severity decides the verdict of the turn.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_checkers():
        return [Component("no_sleep", "my_plugin.no_sleep:NoSleep")]

    # my_plugin/no_sleep.py
    from kernelrl_core.api.checkers import Checker, Finding, Rule, Severity

    SLEEP = Rule("sleep", Severity.SUSPECT, "Do not call time.sleep.")

    class NoSleep(Checker):
        rules = (SLEEP,)

        def check(self, candidate, task, evaluation):
            if evaluation is not None:
                return ()
            return [
                Finding(SLEEP.id, SLEEP.severity, f"line {number}: {line.strip()}", line=number)
                for number, line in enumerate(candidate.source.splitlines(), 1)
                if "time.sleep(" in line
            ]
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
    """Looks for reward hacks. Pure."""

    rules: Sequence[Rule]
    """Every rule it can report. A recipe's `forbid` turns one into a stated rule."""

    @abstractmethod
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings. Called before any run with `evaluation=None`, and again with the evaluation. Runs in a worker
        thread, one call at a time."""
