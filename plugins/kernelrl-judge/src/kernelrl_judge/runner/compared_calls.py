"""Calls whose outputs are compared. They are not timed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.failures import Phase
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.runner.allocations import fill_fresh_memory, poison_device
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.shared_memory import refilled

__all__ = ["ComparedCalls"]


class ComparedCalls:
    """Serves orders to call a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._channel = candidate.channel
        self._kept_arguments: Any = None
        """Arguments of the previous call, if it had to keep them."""

    def call(self, frame: Frame) -> None:
        """Make a call, and export the output and the other values that the judge wants."""
        order = Call.decoded(frame.body)
        candidate = self._candidate
        attempt = self._channel.attempt
        candidate.inputs.refresh()
        arguments = candidate.inputs.values(order.arguments, candidate.device)
        if order.reuses_arguments:
            arguments = refilled(self._kept_arguments, arguments)
        if order.poison is not None:
            self._poison(order.poison, order.poisoned_bytes)
        candidate.impose(order.state)
        executed: Any = None
        with self._order_of_work(order.threads):
            if order.lists_operators:
                # On a GPU only these calls need the module.
                from kernelrl_judge.runner.operators import listed

                output, executed = attempt(
                    Phase.FORWARD,
                    lambda: listed(lambda: candidate.forward(arguments), candidate.state.given_tensors()),
                )
            else:
                output = attempt(Phase.FORWARD, lambda: candidate.forward(arguments))
        if order.repeats:
            output = attempt(Phase.FORWARD, lambda: self._most_different(order, output))
        state = attempt(Phase.EXPORT, lambda: candidate.state.values(order.returned_state, candidate.device))
        others = [arguments if order.returns_inputs else None, state]
        body = attempt(Phase.EXPORT, lambda: encode_tree(candidate.exported(output, others)))
        # While they are kept, the arguments of the next call get other addresses.
        self._kept_arguments = arguments if order.keeps_arguments else None
        self._channel.reply(FrameKind.RESULT, body)
        if order.lists_operators:
            facts = {"operators": executed.operators, "launches": executed.launches}
            self._channel.reply(FrameKind.FACTS, encode_tree(facts))

    def _most_different(self, order: Call, output: Any) -> Any:
        """An output of the same call with other numbers of threads: the one that differs most."""
        from kernelrl_judge.runner.reordering import most_different

        candidate = self._candidate

        def call() -> Any:
            arguments = candidate.inputs.values(order.arguments, candidate.device)
            candidate.impose(order.state)
            return candidate.forward(arguments)

        return most_different(call, output)

    def _order_of_work(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """A context in which threads and programs work in the usual order, or in another one."""
        if not threads:
            return contextlib.nullcontext()
        from kernelrl_judge.runner.reordering import reordered

        return reordered(threads=threads if self._candidate.mode == "cpu" else 0)

    def _poison(self, byte: int, sizes: Sequence[int]) -> None:
        """Poison free memory: a call must not pass with memory that it allocates and does not write."""
        if self._candidate.device == "cuda":
            poison_device(byte, sizes)
        elif self._candidate.mode == "cpu":
            fill_fresh_memory(byte)
