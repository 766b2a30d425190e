"""Timeline: division of the time of a step among activities.

Episodes overlap, so each second is divided equally among the activities in progress: with three replies being sampled
and one kernel being evaluated, it counts as 0.75 s of sampling and 0.25 s of evaluating. Time without an activity
counts as `core`: prompts, journals, credit. The parts of a step add up to its time.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import attrs

from kernelrl_core.types import Turn

__all__ = ["TIME_KINDS", "Span", "Timeline", "shares_text", "split_evaluation"]

TIME_KINDS = ("sampling", "building", "evaluating", "waiting", "training", "saving", "core")
"""Activities. `waiting` is time in a queue: for a sampling slot, an evaluation worker, a device lease, or the start of
judge processes."""
_TEXTS = {"waiting": "queued for a worker or device"}
"""Activity -> its text for users, where it differs."""


@attrs.define(eq=False)
class Span:
    """One activity, with its start and end in seconds of the monotonic clock."""

    kind: str
    begin: float
    parts: tuple[tuple[str, float], ...] = ()
    """Kinds of an ended span with their end times, in order; empty if the whole span is of `kind`."""
    end: float | None = None

    def seconds(self) -> float:
        """Duration in seconds; until now if the span has not ended."""
        return (time.monotonic() if self.end is None else self.end) - self.begin


class Timeline:
    """The activities of a run."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    @contextmanager
    def span(self, kind: str) -> Iterator[Span]:
        """Record an activity of `kind` for the duration of the `with` block."""
        span = Span(kind, time.monotonic())
        self._spans.append(span)
        try:
            yield span
        finally:
            span.end = time.monotonic()

    def shares(self, begin: float, end: float) -> dict[str, float]:
        """Seconds per kind between two times, for all of `TIME_KINDS`. Forgets the spans that ended before `end`."""
        edges: defaultdict[float, Counter[str]] = defaultdict(Counter)
        edges[begin], edges[end] = Counter(), Counter()
        for span in self._spans:
            start = span.begin
            for kind, stop in span.parts or ((span.kind, end if span.end is None else span.end),):
                first, last = max(start, begin), min(stop, end)
                if first < last:
                    edges[first][kind] += 1
                    edges[last][kind] -= 1
                start = stop
        self._spans = [span for span in self._spans if span.end is None or span.end > end]
        seconds = dict.fromkeys(TIME_KINDS, 0.0)
        active: Counter[str] = Counter()
        for now, then in pairwise(sorted(edges)):
            for kind, n in edges[now].items():
                active[kind] += n
            total = sum(active.values())
            if not total:
                seconds["core"] += then - now
            for kind, n in active.items():
                seconds[kind] += (then - now) * n / total if n else 0.0
        return seconds


def shares_text(seconds: Mapping[str, float], total: float) -> str:
    """Activities with at least 5 % of a time, such as ` (sampling 61%, evaluating 20%)`; empty if there are none."""
    parts = sorted(((own / max(total, 1e-9), kind) for kind, own in seconds.items()), reverse=True)
    large = [f"{_TEXTS.get(kind, kind)} {share:.0%}" for share, kind in parts if share >= 0.05]
    return f" ({', '.join(large)})" if large else ""


def split_evaluation(span: Span, turn: Turn) -> None:
    """Divide the span of an evaluation into waiting, building and evaluating, by the seconds the evaluator reports.

    A verification counts as evaluating.
    """
    reported: Mapping[str, Any] = turn.evaluation.seconds if turn.evaluation is not None else {}
    if span.end is None or not reported:
        return
    whole = span.end - span.begin
    run = sum(float(reported.get(key, 0.0)) for key in ("run", "timing", "no_op")) + turn.seconds.get("verify", 0.0)
    run = min(run, whole)
    build = min(float(reported.get("build", 0.0)), whole - run)
    begin = span.end - run - build
    span.parts = (("waiting", begin), ("building", begin + build), ("evaluating", span.end))
