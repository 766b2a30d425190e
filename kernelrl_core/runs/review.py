"""The condition under which a person should review a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelrl_core.types import Outcome, Verdict

__all__ = ["needs_review"]


def needs_review(row: Mapping[str, Any], *, hacked: bool = False) -> bool:
    """Whether a person should review a sample: it is correct, and suspect or refuted by its verification.

    Args:
        hacked: include samples with outcome `hacked`.
    """
    if row["outcome"] == Outcome.CORRECT:
        return row["verdict"] == Verdict.SUSPECT or row.get("verified") is False
    return hacked and row["outcome"] == Outcome.HACKED
