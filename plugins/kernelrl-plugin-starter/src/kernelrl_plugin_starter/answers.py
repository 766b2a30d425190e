"""Right and flawed answers to a task, made from its reference."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.values import Demonstration, Outcome
from kernelrl_plugin_starter.flaws import SEMANTIC, SYNTACTIC, Flaw
from kernelrl_plugin_starter.frames import BLOCKS, Frame, Program, program, read_reference

__all__ = ["SEMANTIC_SHARE", "answers"]

SEMANTIC_SHARE = 0.7
"""Share of the semantic flaws among the flawed answers; the syntactic ones have the rest."""

_N_SEMANTIC = 5
_N_SYNTACTIC = 3


def answers(source: str, frame: Frame, turn: int, right_share: float) -> list[Demonstration]:
    """The answers to a reference, right ones first; their weights add up to 1.

    Every task gets the first applicable flaws of its own turn through the lists, so that each kind of flaw is met in
    many tasks and every task has several kinds.
    """
    reference = read_reference(source)
    programs = [program(reference, frame, block) for block in BLOCKS[frame]]

    def flawed(flaws: Sequence[Flaw], count: int, share: float) -> list[Demonstration]:
        order = [flaws[(turn + i) % len(flaws)] for i in range(len(flaws))]
        found: list[tuple[Flaw, str]] = []
        for flaw in order:
            right: Program = programs[(turn + len(found)) % len(programs)]
            source = flaw.source(reference, frame, right)
            if source is not None and len(found) < count:
                found.append((flaw, source))
        return [
            Demonstration(source, "triton", flaw.outcome, flaw=flaw.name, weight=share / len(found))
            for flaw, source in found
        ]

    return [
        *(
            Demonstration(right.source(), "triton", Outcome.CORRECT, weight=right_share / len(programs))
            for right in programs
        ),
        *flawed(SEMANTIC, _N_SEMANTIC, (1.0 - right_share) * SEMANTIC_SHARE),
        *flawed(SYNTACTIC, _N_SYNTACTIC, (1.0 - right_share) * (1.0 - SEMANTIC_SHARE)),
    ]
