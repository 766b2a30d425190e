"""The keys that the readers of a run's journals need, with the types of their values.

Rows have more keys. A mapping describes a mapping, `"*"` all its other values; a list describes each item; a tuple has
None and the shape of any other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from kernelrl_core.types import Outcome

__all__ = ["PROGRESS", "SAMPLE", "SHAPES", "fault"]

Shape = Any

_NUMBER = int | float
_NUMBERS = {"*": _NUMBER}
_TIMES = (None, {"median_us": _NUMBER, "p10_us": _NUMBER, "p90_us": _NUMBER, "n": int})

SAMPLE: Shape = {
    **dict.fromkeys(("sample", "task_id", "task_sha256", "outcome", "verdict", "message", "feedback"), str),
    **dict.fromkeys(("step", "task_index", "attempt", "turn", "behind"), int),
    "level": int | None,
    "kernel_sha256": str | None,
    "speedup": _NUMBER | None,
    "verified": bool | None,
    "prompt": {"messages": [{"role": str, "content": str}], "tokens": list},
    "reply": {"text": str, "tokens": list, "thinking": str | None, "stop_reason": str},
    "extraction": {
        **dict.fromkeys(("problem", "thinking", "summary"), str),
        "candidate": (None, {"source": str, "backend": str}),
    },
    "evaluation": (
        None,
        {"build": str, "runtime": _TIMES, "baseline": _TIMES, "provenance": dict, "seconds": _NUMBERS},
    ),
    "findings": [{"rule": str, "severity": str, "evidence": str}],
    "score": {"total": _NUMBER, "parts": _NUMBERS},
    "seconds": _NUMBERS,
}
_CORRECT: Shape = {"extraction": {"candidate": dict}, "evaluation": dict}
"""Shape of a correct sample, beside that of every sample."""
_METRICS: Shape = {"step": int, "progress/done_frac": _NUMBER, "time/total": _NUMBER, "*": _NUMBER}

SHAPES: Mapping[str, Shape] = {
    "samples": SAMPLE,
    "eval_samples": SAMPLE,
    "credits": {
        "sample": str,
        "step": int,
        **dict.fromkeys(("return", "advantage"), _NUMBER | None),
        "masked": bool,
        "filtered": bool,
    },
    "metrics": _METRICS,
    "checkpoints": {
        "name": str,
        "step": int,
        "policy": dict | None,
        "loop": {"next_step": int},
        "metrics": _METRICS,
    },
    "begun": {"purpose": str, "sample": str},
}
"""Name of a journal -> shape of its rows."""

PROGRESS: Shape = {
    "phase": str,
    "detail": str,
    "samples": int,
    "samples_at_most": int | None,
    "correct": int,
    "seconds": _NUMBER,
    "samples_per_s": _NUMBER | None,
    "left_s": _NUMBER | None,
}
"""Shape of the progress in `state.json`."""

_NAMES: Mapping[type | UnionType, str] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    int: "a whole number",
    bool: "true or false",
    _NUMBER: "a number",
    str | None: "text or null",
    int | None: "a whole number or null",
    bool | None: "true, false or null",
    dict | None: "a mapping or null",
    _NUMBER | None: "a number or null",
}


def fault(value: Any, shape: Shape) -> str:
    """The first difference between a value and a shape, such as `score.total is missing`; empty if there is none."""
    return _fault(value, shape).lstrip(" .")


def _fault(value: Any, shape: Shape) -> str:
    """The same, beginning with the path of the value."""
    if isinstance(shape, tuple):
        return "" if value is None else _fault(value, shape[1])
    kind: Any = type(shape) if isinstance(shape, dict | list) else shape
    if not isinstance(value, kind):
        return f" must be {_NAMES[kind]}"
    if isinstance(shape, list):
        return next((f"[{n}]{found}" for n, item in enumerate(value) if (found := _fault(item, shape[0]))), "")
    if not isinstance(shape, dict):
        return ""
    for key, below in shape.items():
        if key == "*":
            continue
        found = _fault(value[key], below) if key in value else " is missing"
        if found:
            return f".{key}{found}"
    if shape is SAMPLE and value["outcome"] == Outcome.CORRECT:
        return _fault(value, _CORRECT)
    others = value.keys() - shape.keys() if "*" in shape else ()
    return next((f".{key}{found}" for key in others if (found := _fault(value[key], shape["*"]))), "")
