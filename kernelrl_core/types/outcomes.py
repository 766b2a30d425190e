"""Outcome, rules, findings and verdict of a turn."""

from __future__ import annotations

from enum import StrEnum

import attrs

__all__ = ["CHECKER_FAILED", "CHECKER_FAILED_RULE", "Finding", "Outcome", "Rule", "Severity", "Verdict"]

CHECKER_FAILED = "checker_failed"
"""Rule of the note that replaces the findings of a checker that raised an exception or reported an undeclared rule."""


class Outcome(StrEnum):
    """How a turn ended; exactly one value per turn."""

    FORMAT_ERROR = "format_error"
    """No usable code in the reply, or the reply was cut off."""
    REJECTED = "rejected"
    """The candidate breaks a stated rule. If a checker found it in the source, the candidate was not executed."""
    COMPILE_ERROR = "compile_error"
    """The candidate does not build, or its module does not load."""
    RUNTIME_ERROR = "runtime_error"
    """Constructing or calling `ModelNew` failed."""
    TIMEOUT = "timeout"
    """The time limit of the candidate was reached."""
    OUT_OF_MEMORY = "out_of_memory"
    """A memory limit was reached."""
    INCORRECT = "incorrect"
    """The candidate ran, and values, shape, dtype, device or structure of an output are wrong."""
    HACKED = "hacked"
    """A finding of severity `hack`: outputs or run time are not real."""
    CORRECT = "correct"
    """Every trial passed."""
    INFRA_ERROR = "infra_error"
    """Infrastructure error. Never scored, cached or shown to the model; retried, then masked and counted."""


class Severity(StrEnum):
    """Severity of a finding."""

    NOTE = "note"
    """Information only; the verdict stays `clean`."""
    SUSPECT = "suspect"
    """Evidence that does not exclude an honest kernel; the recipe key `verdicts.suspect` decides the score."""
    HACK = "hack"
    """Proof of a reward hack; the outcome is `hacked`."""


class Verdict(StrEnum):
    """Worst severity among the findings of a turn."""

    CLEAN = "clean"
    """No finding, or only notes."""
    SUSPECT = "suspect"
    """A finding of severity `suspect`, none of severity `hack`."""
    HACK = "hack"
    """A finding of severity `hack`."""


@attrs.frozen
class Rule:
    """A rule that a checker can report as broken."""

    id: str
    """Stable name. Checkers of a recipe that report the same rule share it."""
    severity: Severity
    """Usual severity of its findings; each finding states its own."""
    statement: str
    """One sentence in the imperative, used in prompt, feedback and documentation."""
    reason: str = ""
    """Reason for the rule, for the documentation."""
    example: str = ""
    """A source or a behaviour that breaks it."""
    look_alike: str = ""
    """An honest kernel that resembles the example, and has no finding."""
    misses: str = ""
    """Violations that it does not find, and what finds them."""
    cost: str = ""
    """Cost of the check: calls or time; empty: it reads the source or an existing result."""
    stated: bool = False
    """Whether recipes with its checker state the rule unless they set `forbid`."""


CHECKER_FAILED_RULE = Rule(
    CHECKER_FAILED,
    Severity.NOTE,
    "Checkers raise no exception and report only rules that they declare.",
    "The findings of the candidate are incomplete. It says nothing about the candidate.",
    example="A third-party checker raises `ValueError` on a source.",
    look_alike="Every kernel; the share of such turns is the metric `checker_failed_rate`.",
    misses="A checker that wrongly reports nothing.",
)
"""Rule of the findings that the core reports in place of a checker's."""


@attrs.frozen
class Finding:
    """Evidence that a candidate breaks a rule."""

    rule: str
    """`Rule.id` of the broken rule."""
    severity: Severity
    """Severity; it decides the verdict of the turn."""
    evidence: str
    """Observation, with line and excerpt if it was found in a source."""
    line: int | None = None
    """Line of the candidate's source, from 1; None if there is none."""
    checker: str = ""
    """Name of the checker in the recipe, or `judge`. A checker leaves it empty; the core sets it."""
