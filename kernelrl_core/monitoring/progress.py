"""Progress of the present phase of a run or of a held-out evaluation: samples done, rate, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Progress", "progress_text"]


@attrs.define
class Progress:
    """Progress of the present phase."""

    phase: str
    """Such as `start`, `step 3` or `evaluating held_out`."""
    total: int | None = None
    """Maximum number of samples of the phase; None: unknown."""
    done: int = 0
    """Finished samples, including those of an interrupted run that are not repeated."""
    correct: int = 0
    """Those of them with outcome `correct`."""
    detail: str = ""
    """Last line about the phase, such as `warm start: step 61 of 600, loss 5.110`."""
    began: float = attrs.field(factory=time.monotonic)
    """Start of the phase in seconds of the monotonic clock."""

    def facts(self) -> dict[str, Any]:
        """Flat facts; `left_s` is None until a rate is known."""
        seconds = time.monotonic() - self.began
        rate = self.done / seconds if self.done and seconds > 0 else None
        left_s = (self.total - self.done) / rate if rate is not None and self.total is not None else None
        return {
            "phase": self.phase,
            "detail": self.detail,
            "samples": self.done,
            "samples_at_most": self.total,
            "correct": self.correct,
            "seconds": round(seconds, 1),
            "samples_per_s": rate and round(rate, 3),
            "left_s": None if left_s is None else round(left_s, 1),
        }


def progress_text(facts: Mapping[str, Any], *, ended: bool = False) -> str:
    """Progress in one line, from `Console.progress`.

    Args:
        ended: the phase is over: without rate, time left and request to stop.
    """
    has_all = facts["samples_at_most"] is not None and facts["samples"] >= facts["samples_at_most"]
    parts = [f"{facts['phase']}: {facts['seconds']:.0f} s"]
    if facts["samples_at_most"] is not None:
        share = f", {facts['correct'] / facts['samples']:.0%} correct" if facts["samples"] else ""
        parts.append(f"{facts['samples']} of at most {facts['samples_at_most']} samples{share}")
    if has_all and not ended:
        if facts["phase"].startswith("step "):
            parts.append("training")
    elif facts["samples_per_s"] is not None and not ended:
        parts.append(f"{facts['samples_per_s']:.2g} samples/s")
        if facts["left_s"] is not None:
            parts.append(f"at most {facts['left_s']:.0f} s left")
    stopping = "stops after this step" if facts.get("stopping") and not ended else ""
    return "; ".join([*parts, *filter(None, [facts["detail"], stopping])])
