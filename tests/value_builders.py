"""Values of a run that say no more than a test is about."""

from __future__ import annotations

from typing import Any

import attrs

from kernelrl_core.types import Extraction, Outcome, Prompt, Reply, SampleId, Task, Turn, Verdict

__all__ = ["make_turn"]


def make_turn(outcome: Outcome, **fields: Any) -> Turn:
    """A clean turn with this outcome, an empty reply, and neither a candidate nor an evaluation; `fields` replace."""
    plain = Turn(
        id=SampleId(0, 0, 0, 0),
        task=Task("t", ""),
        prompt=Prompt((), ()),
        reply=Reply("", (), (), "stop"),
        extraction=Extraction(None),
        evaluation=None,
        findings=(),
        outcome=outcome,
        verdict=Verdict.CLEAN,
        message="",
    )
    return attrs.evolve(plain, **fields)
