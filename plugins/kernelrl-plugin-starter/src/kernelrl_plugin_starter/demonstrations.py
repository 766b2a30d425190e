"""Correct and flawed demonstrations for a task, generated from its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelrl_core.api.tasks import Demonstration, Outcome
from kernelrl_plugin_starter.config import Size
from kernelrl_plugin_starter.cpp_flaws import CPP_SEMANTIC, CPP_SYNTACTIC
from kernelrl_plugin_starter.cpp_frames import STYLES, cpp_program
from kernelrl_plugin_starter.flaws import SEMANTIC, SYNTACTIC
from kernelrl_plugin_starter.frames import BLOCKS, Frame, program, read_reference
from kernelrl_plugin_starter.gpu_frames import gpu_programs

__all__ = ["SEMANTIC_SHARE", "demonstrations"]

SEMANTIC_SHARE = 0.7
"""Share of the semantic flaws in the weight of the flawed demonstrations; syntactic flaws get the rest."""

_N_SEMANTIC = 5
_N_SYNTACTIC = 3


def demonstrations(source: str, frame: Frame, turn: int, right_share: float, size: Size) -> list[Demonstration]:
    """Demonstrations for a reference: first Triton, then C++; correct ones before flawed ones.

    The weights of each backend sum to 1. `turn` rotates the lists of flaws, and every task gets the first applicable
    ones. So every kind of flaw occurs in many tasks, and every task has several kinds.
    """
    reference = read_reference(source)
    if size == "huge":
        programs = gpu_programs(reference, frame)
    else:
        programs = [program(reference, frame, block) for block in BLOCKS[frame]]
    triton = [right.source() for right in programs]
    cpp = [cpp_program(reference, frame, style).source() for style in STYLES]
    return [
        *_of_backend("triton", triton, lambda flaw, i: flaw.source(reference, frame, programs[i]), turn, right_share),
        *_of_backend("cpp", cpp, lambda flaw, i: flaw.source(reference, frame, STYLES[i]), turn, right_share),
    ]


_FLAWS: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "triton": (SEMANTIC, SYNTACTIC),
    "cpp": (CPP_SEMANTIC, CPP_SYNTACTIC),
}


def _of_backend(
    backend: str, right: list[str], plant: Callable[[Any, int], str | None], turn: int, right_share: float
) -> list[Demonstration]:
    """Demonstrations of one backend.

    Args:
        right: sources of the correct kernels.
        plant: maps a flaw and an index into `right` to the flawed source, or to None where the flaw does not apply.
    """

    def flawed(flaws: Sequence[Any], count: int, share: float) -> list[Demonstration]:
        order = [flaws[(turn + i) % len(flaws)] for i in range(len(flaws))]
        found: list[tuple[Any, str]] = []
        for flaw in order:
            source = plant(flaw, (turn + len(found)) % len(right))
            if source is not None and len(found) < count:
                found.append((flaw, source))
        return [
            Demonstration(source, backend, flaw.outcome, flaw=flaw.name, weight=share / len(found))
            for flaw, source in found
        ]

    semantic, syntactic = _FLAWS[backend]
    return [
        *(Demonstration(source, backend, Outcome.CORRECT, weight=right_share / len(right)) for source in right),
        *flawed(semantic, _N_SEMANTIC, (1.0 - right_share) * SEMANTIC_SHARE),
        *flawed(syntactic, _N_SYNTACTIC, (1.0 - right_share) * (1.0 - SEMANTIC_SHARE)),
    ]
