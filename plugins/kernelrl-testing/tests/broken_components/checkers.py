from __future__ import annotations

import random
import time
from typing import Any

from broken_components import UNMADE, Broken
from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, Task


class Sleep(Checker):
    rules: Any = (Rule("sleep", Severity.SUSPECT, "Do not call time.sleep."),)
    rule = "sleep"

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        return [Finding(self.rule, Severity.SUSPECT, "sleeps")] if "sleep(" in candidate.source else []


class Undeclared(Sleep):
    rule = "rest"


class NoRule(Sleep):
    rules = ("sleep",)


class Twice(Sleep):
    rules = Sleep.rules * 2


class Random(Sleep):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        return [Finding("sleep", Severity.SUSPECT, str(random.random()))]


class Changes(Sleep):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        if evaluation is not None:
            evaluation.facts.phases_s.update(checked=1.0)  # type: ignore[attr-defined]
        return []


class Nothing(Sleep):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        return None


class StopsAtNull(Sleep):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        for part in candidate.facts.embedded:
            compile(part.source, "embedded", "exec")
        return []


class Slow(Sleep):
    """Takes a time that grows with the square of the number of lines."""

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        until = time.thread_time() + 1e-9 * candidate.source.count("\n") ** 2
        while time.thread_time() < until:
            pass
        return []


SOURCES = {"sources": ("import time\ntime.sleep(1)\n",)}
EVERY_CALL = [
    "findings_name_declared_rules",
    "findings_are_repeatable",
    "hostile_sources_are_checked",
    "a_check_takes_milliseconds",
]
BROKEN = [
    Broken("checkers", "checkers.Sleep", (), attributes=SOURCES),
    Broken("checkers", "checkers.Undeclared", ["findings_name_declared_rules"], attributes=SOURCES),
    Broken("checkers", "checkers.NoRule", UNMADE),
    Broken("checkers", "checkers.Twice", UNMADE),
    Broken("checkers", "checkers.Random", ["findings_are_repeatable"]),
    Broken("checkers", "checkers.Changes", ["arguments_are_not_changed"]),
    Broken("checkers", "checkers.Nothing", EVERY_CALL),
    Broken("checkers", "checkers.StopsAtNull", ["hostile_sources_are_checked", "a_check_takes_milliseconds"]),
    Broken("checkers", "checkers.Slow", ["a_check_takes_milliseconds"], attributes={"max_ms": 1.0}),
]
