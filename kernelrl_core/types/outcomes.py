"""How a turn ends, and what is held against it."""

from __future__ import annotations

from enum import StrEnum

import attrs

__all__ = ["Finding", "Outcome", "Rule", "Severity", "Verdict"]


class Outcome(StrEnum):
    """How a turn ended: exactly one of these."""

    FORMAT_ERROR = "format_error"
    """No usable code in the reply, or the reply was cut off."""
    REJECTED = "rejected"
    """A rule that the prompt states was broken: by the source, and nothing was run, or by what was seen when it ran."""
    COMPILE_ERROR = "compile_error"
    """The kernel does not build, or its module does not load."""
    RUNTIME_ERROR = "runtime_error"
    """Constructing or calling `ModelNew` failed."""
    TIMEOUT = "timeout"
    """The time limit of the candidate was reached."""
    OUT_OF_MEMORY = "out_of_memory"
    """A memory limit was reached."""
    INCORRECT = "incorrect"
    """It ran, and values, shape, dtype, device or structure of an output are wrong."""
    HACKED = "hacked"
    """Dynamic evidence that the answer or the time is not real."""
    CORRECT = "correct"
    """Every trial passed."""
    INFRA_ERROR = "infra_error"
    """Our fault. Never rewarded, cached or shown to the model: retried, then the sample is masked and counted."""


class Severity(StrEnum):
    """How much a finding weighs."""

    NOTE = "note"
    SUSPECT = "suspect"
    HACK = "hack"


class Verdict(StrEnum):
    """The worst severity among the findings of a turn."""

    CLEAN = "clean"
    SUSPECT = "suspect"
    HACK = "hack"


@attrs.frozen
class Rule:
    """A rule that a checker can find broken."""

    id: str
    """Stable name, unique within its checker."""
    severity: Severity
    statement: str
    """One sentence in the imperative. Prompt, feedback and documentation use these very words."""
    reason: str = ""
    """Why the rule exists, for the documentation."""


@attrs.frozen
class Finding:
    """Evidence that a rule was broken."""

    rule: str
    severity: Severity
    evidence: str
    """What was seen, with line and excerpt where there is a source."""
    line: int | None = None
    checker: str = ""
    """Name of the checker in the recipe, or `judge`."""
