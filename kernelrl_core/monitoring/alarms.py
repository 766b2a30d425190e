"""Alarms: findings that become frequent, and signs of a collapse of the policy.

A policy that has found a reward hack uses it more and more often. A policy that is about to collapse changes before:
in Kevin (arXiv 2507.11948) the share of replies with an unusual first word rose about 15 steps earlier.

    metric                  meaning                                      alarm if the mean of the last 5 steps
    finding/*               share of samples with a finding              is at least 5 % and twice the earlier mean
    collapse/opening_drift  share of replies with an unusual first word  the same
    collapse/repetition     share of replies that end in repetition      the same
    truncated_rate          share of replies truncated at the limit      the same
    collapse/nll            -log p in nats per sampled token             is below half or above twice the earlier mean
    tokens/reply_mean       tokens per reply                             the same

The earlier mean is that of all steps before the last 5. There is no alarm before step 10.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.errors import more
from kernelrl_core.sources.thinking import split_thinking
from kernelrl_core.types import Group, Turn

__all__ = ["FINDING_PREFIX", "Alarms", "climbing", "first_word", "is_repetitive", "moved", "negative_log_likelihood"]

FINDING_PREFIX = "finding/"
"""Prefix of the metrics of findings."""
_CLIMBING = {
    "collapse/opening_drift": "replies with an unusual first word",
    "collapse/repetition": "replies that end in repetition",
    "truncated_rate": "replies truncated at the token limit",
}
_LEVELS = {"collapse/nll": "negative log-probability per token", "tokens/reply_mean": "tokens per reply"}
_SEE = {
    "collapse/opening_drift": "alarm-first-word",
    "collapse/repetition": "alarm-repetition",
    "truncated_rate": "alarm-truncation",
    "collapse/nll": "alarm-entropy",
    "tokens/reply_mean": "alarm-length",
}
"""Metric -> id of the alarm's entry in `docs/troubleshooting.md`. That of findings is `alarm-finding`."""
_WINDOW = 5
_LEAST_RATE = 0.05
_TIMES = 2.0
_TAIL = 4000
"""Characters at the end of a reply that are checked: a repetition continues to the end."""
_LEAST_TAIL = 400
_COMPRESSED = 0.1
_USUAL = 0.05
"""Least share of the first step's replies with a first word for it to count as usual."""


class Alarms:
    """Compares the metrics of each step with those of earlier steps."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._usual: frozenset[str] | None = None

    def measure(self, groups: Sequence[Group]) -> dict[str, float]:
        """The `collapse/*` metrics of a step. The first step defines the usual first words."""
        turns = [turn for group in groups for turn in group.turns if not turn.masked]
        if not turns:
            return {}
        openings = [first_word(turn) for turn in turns]
        if self._usual is None:
            counts = Counter(openings)
            self._usual = frozenset(word for word, n in counts.items() if n >= _USUAL * len(turns))
        row = {
            "collapse/opening_drift": sum(word not in self._usual for word in openings) / len(turns),
            "collapse/repetition": sum(is_repetitive(turn.reply.text) for turn in turns) / len(turns),
        }
        nats = negative_log_likelihood(turns)
        return row if nats is None else row | {"collapse/nll": nats}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {} if self._usual is None else {"openings": sorted(self._usual)}

    def restore(self, loop: Mapping[str, Any]) -> None:
        """Restore the state from the loop state of a checkpoint."""
        if "openings" in loop:
            self._usual = frozenset(loop["openings"])

    def after(self, row: Mapping[str, Any]) -> list[str]:
        """Alarm lines after a step with these metrics. Must be called for every step in order, also before a resume."""
        watched = {name for name in row if name.startswith(FINDING_PREFIX) or name in _CLIMBING or name in _LEVELS}
        self._rows.append({name: float(row[name]) for name in watched})
        lines = [
            f"alarm: finding {rule!r}: {last:.0%} of samples in the last {_WINDOW} steps, {before:.0%} before; "
            f"{more('alarm-finding')}"
            for rule, (before, last) in climbing(self._rows).items()
        ]
        lines += [
            f"alarm: {_CLIMBING[name]}: {last:.0%} in the last {_WINDOW} steps, {before:.0%} before; {more(_SEE[name])}"
            for name, (before, last) in climbing(self._rows, tuple(_CLIMBING)).items()
        ]
        return lines + [
            f"alarm: {_LEVELS[name]}: {last:.3g} in the last {_WINDOW} steps, {before:.3g} before; {more(_SEE[name])}"
            for name, (before, last) in moved(self._rows, tuple(_LEVELS)).items()
        ]


def first_word(turn: Turn) -> str:
    """First word of the reply's thinking, or of the reply without thinking; empty for an empty reply."""
    visible, thinking = split_thinking(turn.reply.text, turn.reply.thinking or "")
    text = thinking or visible
    return next(iter(text.split(maxsplit=1)), "")


def is_repetitive(text: str) -> bool:
    """Whether zlib compresses the last 4,000 characters of a text to a tenth of their size or less.

    False for texts of fewer than 400 bytes.
    """
    tail = text[-_TAIL:].encode("utf-8", "surrogatepass")
    return len(tail) >= _LEAST_TAIL and len(zlib.compress(tail, 1)) <= _COMPRESSED * len(tail)


def negative_log_likelihood(turns: Sequence[Turn]) -> float | None:
    """Mean of -log p over the sampled tokens, in nats; None without tokens.

    Estimates the policy's entropy per token if the temperature is 1, and approximates it for other temperatures.
    """
    n = sum(len(turn.reply.logprobs) for turn in turns)
    # Within a reply the order is fixed, so a plain sum is deterministic; it takes a tenth of the time of fsum.
    return -math.fsum(sum(turn.reply.logprobs) for turn in turns) / n if n else None


def climbing(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> dict[str, tuple[float, float]]:
    """Rates that with the last step become frequent: at least 5 % and twice the earlier mean, and not so a step before.

    Args:
        rows: metrics of the steps so far, in order.
        names: metrics to check; empty: all findings, reported by rule id.

    Returns:
        Name -> mean before the last 5 steps, mean of the last 5 steps. Empty before step 10.
    """
    before = _climbing(rows[:-1], names)
    return {name: rates for name, rates in _climbing(rows, names).items() if name not in before}


def moved(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Levels that, with the last step, leave the range from half to twice the earlier mean.

    Returns:
        Name -> mean before the last 5 steps, mean of the last 5 steps. Empty before step 10.
    """
    before = _moved(rows[:-1], names)
    return {name: levels for name, levels in _moved(rows, names).items() if name not in before}


def _climbing(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    if len(rows) < 2 * _WINDOW:
        return {}
    earlier, last = rows[:-_WINDOW], rows[-_WINDOW:]
    found = {}
    for name in names or sorted({key for row in last for key in row if key.startswith(FINDING_PREFIX)}):
        was = statistics.fmean(float(row.get(name, 0.0)) for row in earlier)
        now = statistics.fmean(float(row.get(name, 0.0)) for row in last)
        if now >= _LEAST_RATE and now >= _TIMES * was:
            found[name.removeprefix(FINDING_PREFIX)] = (was, now)
    return found


def _moved(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    found = {}
    for name in names:
        known = [float(row[name]) for row in rows if name in row]
        if len(known) < 2 * _WINDOW:
            continue
        was, now = statistics.fmean(known[:-_WINDOW]), statistics.fmean(known[-_WINDOW:])
        if was > 0 and not was / _TIMES < now < was * _TIMES:
            found[name] = (was, now)
    return found
