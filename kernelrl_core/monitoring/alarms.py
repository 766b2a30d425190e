"""What changes in a run and should not: findings that climb, and the signs of a model that falls apart.

A model that has found a way around the work uses it more and more often, long before anybody looks at samples. One that
is about to write junk shows it beforehand: in Kevin (arXiv 2507.11948) the share of replies that do not begin as usual
rose some 15 steps earlier.

    finding/*               share of samples with a finding              climbs: to twice what it was, 5 % or more
    collapse/opening_drift  share of replies with an unusual first word  climbs
    collapse/repetition     share of replies that end in repetition      climbs
    truncated_rate          share of replies cut off at the limit        climbs
    collapse/entropy        nats per token                               leaves half to twice what it was
    tokens/reply_mean       tokens per reply                             leaves half to twice what it was

The last 5 steps are compared with all before them, from step 10 on.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.types import Group, Turn

__all__ = ["PREFIX", "Alarms", "climbing", "entropy", "first_word", "is_repetitive", "moved"]

PREFIX = "finding/"
"""Of the metrics of findings."""
_CLIMBING = {
    "collapse/opening_drift": "replies that do not begin as they used to",
    "collapse/repetition": "replies that end in repetition",
    "truncated_rate": "replies cut off at the limit",
}
_LEVELS = {"collapse/entropy": "entropy per token", "tokens/reply_mean": "tokens per reply"}
_WINDOW = 5
_LEAST_RATE = 0.05
_TIMES = 2.0
_TAIL = 4000
"""Characters at the end of a reply that are looked at: a model that loops does so to the end."""
_LEAST_TAIL = 400
_COMPRESSED = 0.1
_USUAL = 0.05
"""Share of the first step's replies from which on their first word is a usual one."""


class Alarms:
    """Watches the steps of a run."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._usual: frozenset[str] | None = None

    def measure(self, groups: Sequence[Group]) -> dict[str, float]:
        """Metrics of a step that show a collapse. The first step says which openings are usual."""
        turns = [turn for group in groups for episode in group.episodes for turn in episode.turns if not turn.masked]
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
        nats = entropy(turns)
        return row if nats is None else row | {"collapse/entropy": nats}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {} if self._usual is None else {"openings": sorted(self._usual)}

    def restore(self, loop: Mapping[str, Any]) -> None:
        """Go on from the loop state of a checkpoint."""
        if "openings" in loop:
            self._usual = frozenset(loop["openings"])

    def after(self, row: Mapping[str, Any]) -> list[str]:
        """What there is to say after a step with these metrics; steps come in order, those before a resume too."""
        watched = {name for name in row if name.startswith(PREFIX) or name in _CLIMBING or name in _LEVELS}
        self._rows.append({name: float(row[name]) for name in watched})
        said = [
            f"alarm: finding {rule!r} in {last:.0%} of the samples of the last steps, {before:.0%} before"
            for rule, (before, last) in climbing(self._rows).items()
        ]
        said += [
            f"alarm: {last:.0%} {_CLIMBING[name]} in the last steps, {before:.0%} before"
            for name, (before, last) in climbing(self._rows, tuple(_CLIMBING)).items()
        ]
        return said + [
            f"alarm: {_LEVELS[name]} is {last:.3g} in the last steps, {before:.3g} before"
            for name, (before, last) in moved(self._rows, tuple(_LEVELS)).items()
        ]


def first_word(turn: Turn) -> str:
    """First word of a reply, of its thinking where there is any."""
    text = turn.reply.thinking or turn.reply.text.strip().removeprefix("<think>")
    return next(iter(text.split(maxsplit=1)), "")


def is_repetitive(text: str) -> bool:
    """Whether the end of a text, at most its last 4,000 characters, takes a tenth of its size or less compressed."""
    tail = text[-_TAIL:].encode("utf-8", "surrogatepass")
    return len(tail) >= _LEAST_TAIL and len(zlib.compress(tail, 1)) <= _COMPRESSED * len(tail)


def entropy(turns: Sequence[Turn]) -> float | None:
    """Mean of -log p over the sampled tokens, in nats: an estimate of the policy's entropy where the temperature is 1,
    and close to it elsewhere. None without tokens."""
    n = sum(len(turn.reply.logprobs) for turn in turns)
    # Within a reply the order is fixed; a plain sum is a tenth of the work, which tells with 16,000 tokens.
    return -math.fsum(sum(turn.reply.logprobs) for turn in turns) / n if n else None


def climbing(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> dict[str, tuple[float, float]]:
    """Rates that have become frequent with the last step.

    Args:
        rows: metrics of the steps so far, in order.
        names: of the metrics; none given: all findings, and the answer has their rule ids.

    Returns:
        Name -> mean rate before the last 5 steps, and in them: those that are at least 5 % and twice what they were,
        and were not so a step earlier. Nothing before step 10.
    """
    before = _climbing(rows[:-1], names)
    return {name: rates for name, rates in _climbing(rows, names).items() if name not in before}


def moved(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Levels that with the last step have left the range from half to twice what they were.

    Returns:
        Name -> mean before the last 5 steps, and in them. Nothing before step 10.
    """
    before = _moved(rows[:-1], names)
    return {name: levels for name, levels in _moved(rows, names).items() if name not in before}


def _climbing(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    if len(rows) < 2 * _WINDOW:
        return {}
    earlier, last = rows[:-_WINDOW], rows[-_WINDOW:]
    found = {}
    for name in names or sorted({key for row in last for key in row if key.startswith(PREFIX)}):
        was, now = (statistics.fmean(float(row.get(name, 0.0)) for row in part) for part in (earlier, last))
        if now >= _LEAST_RATE and now >= _TIMES * was:
            found[name.removeprefix(PREFIX)] = (was, now)
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
