"""What climbs in a run and should not: findings of the checkers and of the judge.

A model that has found a way around the work uses it more and more often, long before anybody looks at samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PREFIX", "Alarms", "climbing"]

PREFIX = "finding/"
"""Of the metrics that are watched."""
_WINDOW = 5
_LEAST_RATE = 0.05
_TIMES = 2.0


class Alarms:
    """Watches the steps of a run."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []

    def after(self, row: Mapping[str, Any]) -> list[str]:
        """What there is to say after a step with these metrics; steps come in order, those before a resume too."""
        self._rows.append({name: float(value) for name, value in row.items() if name.startswith(PREFIX)})
        return [
            f"alarm: finding {rule!r} in {last:.0%} of the samples of the last steps, {before:.0%} before"
            for rule, (before, last) in climbing(self._rows).items()
        ]


def climbing(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Findings that have become frequent with the last step.

    Args:
        rows: metrics of the steps so far, in order.

    Returns:
        Rule id -> mean rate before the last 5 steps, and in them: those that are at least 5 % and twice what they
        were, and were not so a step earlier. Nothing before step 10.
    """
    before = _climbing(rows[:-1])
    return {rule: rates for rule, rates in _climbing(rows).items() if rule not in before}


def _climbing(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    if len(rows) < 2 * _WINDOW:
        return {}
    earlier, last = rows[:-_WINDOW], rows[-_WINDOW:]
    found = {}
    for name in sorted({key for row in last for key in row if key.startswith(PREFIX)}):
        was, now = (statistics.fmean(float(row.get(name, 0.0)) for row in part) for part in (earlier, last))
        if now >= _LEAST_RATE and now >= _TIMES * was:
            found[name.removeprefix(PREFIX)] = (was, now)
    return found
