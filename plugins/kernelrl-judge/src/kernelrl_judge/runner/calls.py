"""Orders that are not timed: calls whose outputs are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.failures import Stage
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.memory import fill_fresh_memory, poison_device, refilled

__all__ = ["Calls"]


class Calls:
    """Calls of a candidate, one at a time."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._dialogue = candidate.dialogue
        self._arguments: Any = None
        """Of the last call, where the next one's are to lie in their place."""

    def call(self, frame: Frame) -> None:
        """Make a call and export what it returned, and what else it left."""
        order = Call.decoded(frame.body)
        candidate, attempt = self._candidate, self._dialogue.attempt
        candidate.inputs.refresh()
        arguments = candidate.inputs.values(order.arguments, candidate.device)
        if order.reuses_arguments:
            # New bytes where those of the call before lay.
            arguments = refilled(self._arguments, arguments)
        if order.poison is not None:
            self._poison(order.poison, order.poisoned_bytes)
        candidate.impose(order.state)
        found: list[Any] = []
        with self._in_order(other=order.changes_order):
            if order.lists_operators:
                from kernelrl_judge.runner.operators import listed

                values, found = attempt(
                    Stage.FORWARD, lambda: listed(lambda: candidate.forward(arguments), candidate.state.given())
                )
            else:
                values = attempt(Stage.FORWARD, lambda: candidate.forward(arguments))
        held = attempt(Stage.EXPORT, lambda: candidate.state.held(order.returned_state, candidate.device))
        beside = [arguments if order.returns_inputs else None, held]
        tree = attempt(Stage.EXPORT, lambda: candidate.exported(values, beside))
        # Kept until the next inputs are made, which then lie elsewhere.
        self._arguments = arguments if order.keeps_arguments else None
        self._dialogue.answer(FrameKind.RESULT, tree)
        if order.lists_operators:
            self._dialogue.answer(FrameKind.FACTS, found)

    def _in_order(self, *, other: bool) -> contextlib.AbstractContextManager[None]:
        """In what order threads and programs do the work of a call."""
        if not other:
            return contextlib.nullcontext()
        from kernelrl_judge.runner.reordering import reordered

        return reordered(threads=self._candidate.mode == "cpu")

    def _poison(self, byte: int, sizes: Sequence[int]) -> None:
        """What a candidate allocates and does not write is no answer."""
        if self._candidate.device == "cuda":
            poison_device(byte, sizes)
        elif self._candidate.mode == "cpu":
            fill_fresh_memory(byte)
