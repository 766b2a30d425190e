"""What the seconds of a step were spent on.

Attempts overlap, so a second of the step is divided among all that goes on in it, in equal parts: with three attempts
being sampled and one judged, it counts as 0.75 s of sampling and 0.25 s of judging. What nobody works in is the core's
own (`core`): prompts, journals, credit. The parts of a step add up to its time.
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

__all__ = ["KINDS", "Span", "Timeline", "shares_text", "split_evaluation"]

KINDS = ("sampling", "building", "evaluating", "waiting", "training", "saving", "core")
"""What a second can be spent on. `waiting`: for a place at the sampler or the evaluator, for a device, or for
judge processes that are still starting."""


@attrs.define(eq=False)
class Span:
    """Something that goes on."""

    kind: str
    begin: float
    parts: tuple[tuple[str, float], ...] = ()
    """Of an ended span: kinds with the times at which they ended, in order; empty: all of it is of `kind`."""
    end: float | None = None

    def seconds(self) -> float:
        """How long it took."""
        return (time.monotonic() if self.end is None else self.end) - self.begin


class Timeline:
    """All that goes on in a run."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    @contextmanager
    def span(self, kind: str) -> Iterator[Span]:
        """Something of `kind` goes on."""
        span = Span(kind, time.monotonic())
        self._spans.append(span)
        try:
            yield span
        finally:
            span.end = time.monotonic()

    def shares(self, begin: float, end: float) -> dict[str, float]:
        """Seconds between two times by kind, all of `KINDS`; what ended before `end` is forgotten."""
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
        seconds = dict.fromkeys(KINDS, 0.0)
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
    """The larger parts of a time, such as ` (sampling 61%, evaluating 20%)`; empty where nothing is known."""
    parts = sorted(((own / max(total, 1e-9), kind) for kind, own in seconds.items()), reverse=True)
    large = [f"{kind} {share:.0%}" for share, kind in parts if share >= 0.05]
    return f" ({', '.join(large)})" if large else ""


def split_evaluation(span: Span, turn: Turn) -> None:
    """Divide the span of an evaluation into waiting, building and running, as far as the evaluator reports them.

    A verification counts as running.
    """
    said: Mapping[str, Any] = turn.evaluation.seconds if turn.evaluation is not None else {}
    if span.end is None or not said:
        return
    whole = span.end - span.begin
    run = sum(float(said.get(key, 0.0)) for key in ("run", "timing", "no_op")) + turn.seconds.get("verify", 0.0)
    run = min(run, whole)
    build = min(float(said.get("build", 0.0)), whole - run)
    begin = span.end - run - build
    span.parts = (("waiting", begin), ("building", begin + build), ("evaluating", span.end))
