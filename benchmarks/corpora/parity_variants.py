"""Right and wrong kernels made from any reference by text alone, and the KernelBench tasks they are made for.

A variant is the reference's source with its class renamed, and a `ModelNew` derived from it that alters the output, or
fails. `ModelNew` has the constructor and the parameters of the reference, so that what differs is what was altered.
"""

from __future__ import annotations

import re
from pathlib import Path

import attrs

__all__ = ["KINDS", "LARGE", "TASKS", "ParityTask", "published_tasks", "variants"]

TASKS = {
    1: {
        "matmul": (1, 2, 3, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18),
        "convolution": (50, 54, 56, 58, 60, 61, 62, 66, 72, 75, 77, 80, 82),
        "normalisation": (40,),
        "activation": (88,),
        "loss": (95,),
    },
    2: {
        "normalisation": (11, 23, 30, 33, 39, 41, 62, 79, 84),
        "reduction": (8, 14, 18, 22, 24, 36, 44, 64),
        "fusion": (6, 9, 12, 29, 40, 47, 50, 53, 57, 63, 70, 71, 74, 76, 81, 82, 83, 85, 86, 95, 96, 99),
    },
}  # fmt: skip
"""Numbers by level and class: inputs and outputs below 1.4 GB."""

LARGE = {
    1: {
        "reduction": (47, 51),
        "normalisation": (33,),
        "loss": (94, 98, 100),
    },
}
"""Inputs of 2 to 9 GB, the only sizes these classes have in level 1; fewer variants of each."""

_ALWAYS = ("right", "off_1_percent", "zeros")
_ALTERED = {
    "right": "out",
    "right_contiguous": "out.contiguous().clone()",
    "off_1_percent": "out * 1.01 if out.is_floating_point() else out + 1",
    "off_1e-3": "out * 1.001 if out.is_floating_point() else out + 1",
    "zeros": "torch.zeros_like(out)",
    "nan": "out * float('nan')",
    "half_precision": "out.half()",
    "unsqueezed": "out.unsqueeze(0)",
    "transposed": "out.transpose(-1, -2) if out.dim() > 1 else out.flip(0) if out.dim() else -out",
    "on_cpu": "out.cpu()",
}
_BODIES = {
    "in_a_tuple": "        return (super().forward(*inputs), 1)",
    "raises_in_forward": "        raise RuntimeError('a kernel could not be launched')",
    "returns_nothing": "        super().forward(*inputs)",
}
_ROTATED = (
    "half_precision", "unsqueezed", "raises_in_forward", "nan", "off_1e-3", "in_a_tuple", "raises_in_init",
    "right_contiguous", "transposed", "syntax_error", "on_cpu", "raises_value_error_in_init", "returns_nothing",
    "raises_at_import", "no_model",
)  # fmt: skip
KINDS = (*_ALWAYS, *_ROTATED)

_FORWARD = """


def _altered(out):
    if isinstance(out, (tuple, list)):
        return type(out)(_altered(item) for item in out)
    return {expression}


class ModelNew(Candidate):
    def forward(self, *inputs):
        return _altered(super().forward(*inputs))
"""
_INIT = """


class ModelNew(Candidate):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        raise {error}('no such layout')
"""


@attrs.frozen
class ParityTask:
    """A task, and the kernels that both evaluators judge."""

    name: str
    stratum: str
    source: str
    kernels: dict[str, tuple[str, str]]
    """`(source, backend)` by kind."""


def variant(reference: str, kind: str) -> str:
    """The kernel of a kind for a reference that defines `Model`."""
    base = re.sub(r"\bModel\b", "Candidate", reference)
    if kind in _ALTERED:
        return base + _FORWARD.format(expression=_ALTERED[kind])
    if kind in _BODIES:
        return base + f"\n\nclass ModelNew(Candidate):\n    def forward(self, *inputs):\n{_BODIES[kind]}\n"
    match kind:
        case "raises_in_init":
            return base + _INIT.format(error="RuntimeError")
        case "raises_value_error_in_init":
            return base + _INIT.format(error="ValueError")
        case "raises_at_import":
            return base + "\n\nclass ModelNew(Candidate):\n    pass\n\n\nraise RuntimeError('no such symbol')\n"
        case "syntax_error":
            return base + "\n\nclass ModelNew(Candidate:\n    pass\n"
        case "no_model":
            return base
    raise ValueError(f"no variant is called {kind}")


def variants(reference: str, place: int, rotated: int = 4) -> dict[str, tuple[str, str]]:
    """The variants every task has, and `rotated` of the others in turn."""
    chosen = [_ROTATED[(place * rotated + step) % len(_ROTATED)] for step in range(rotated)]
    return {kind: (variant(reference, kind), "cuda") for kind in (*_ALWAYS, *chosen)}


def published_tasks(clone: Path, *, large: bool) -> list[ParityTask]:
    """The chosen tasks of a clone of KernelBench with their variants; `large` adds those with large inputs, last.

    Raises:
        FileNotFoundError: the clone lacks one of them.
    """
    made: list[ParityTask] = []
    for table, rotated in ((TASKS, 4), *([(LARGE, 1)] if large else [])):
        for level, strata in table.items():
            for stratum, numbers in strata.items():
                for number in numbers:
                    found = sorted((clone / "KernelBench" / f"level{level}").glob(f"{number}_*.py"))
                    if not found:
                        raise FileNotFoundError(f"{clone} has no task {number} of level {level}")
                    source = found[0].read_text(encoding="utf-8")
                    kernels = variants(source, len(made), rotated)
                    made.append(ParityTask(f"kernelbench/{level}/{number}", stratum, source, kernels))
    return made
