"""Orders that are not timed: calls whose outputs are compared, and what is asked about them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from kernelrl_judge.failures import Stage
from kernelrl_judge.protocol import Frame, FrameKind
from kernelrl_judge.runner_candidate import Candidate
from kernelrl_judge.runner_memory import fill_fresh_memory, poison_device, refilled, tensors
from kernelrl_judge.value_trees import decode_tree

__all__ = ["Calls"]


class Calls:
    """Calls of a candidate, one at a time."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._dialogue = candidate.dialogue
        self._arguments: Any = None
        """Of the last call, where the next one's are to lie in their place."""

    def call(self, frame: Frame) -> None:
        """Make a call and export what it returned."""
        order = decode_tree(frame.body)
        answer = self._dialogue.answer
        if order["operators"]:
            from kernelrl_judge.listing import Listing
            from kernelrl_judge.operators import called
            from kernelrl_judge.provenance import Watch

            watch = Watch()
            # As any listing it may leave out sums of memory.
            begin = watch.begin if order["sums"] else functools.partial(Listing.begin, watch)
            # What computes before the call or after it counts as well.
            tree, facts = called(lambda: self._called(order, begin), watch)
            answer(FrameKind.RESULT, tree)
            # No call was made since it was looked for before the result.
            answer(FrameKind.FACTS, facts, looks=False)
        else:
            answer(FrameKind.RESULT, self._called(order))

    def _called(self, order: Any, begin: Callable[[], None] | None = None) -> Any:
        import torch

        candidate, attempt = self._candidate, self._dialogue.attempt
        # Nothing leaves torch here, and each question about a tensor would be asked through who looks for that.
        with torch._C.DisableTorchFunction():
            arguments, given, before = self._given(order)
        if begin is not None:
            begin()
        with self._in_order(other=order["reordered"]):
            values = attempt(Stage.FORWARD, lambda: candidate.forward(arguments))
        # To go through something of a class of the candidate's may be to run its code.
        with torch._C.DisableTorchFunction() if _is_plain(values) else contextlib.nullcontext():
            tree = self._exported(order, values, arguments, given, before)
        # Kept until the next inputs are made, which then lie elsewhere.
        self._arguments = arguments if order["keep"] else None
        return tree

    def _given(self, order: Any) -> tuple[Any, list[Any], list[Any]]:
        """The arguments of a call, their tensors, and what the model keeps before it."""
        candidate = self._candidate
        candidate.inputs.refresh()
        arguments = candidate.inputs.values(order["arguments"], candidate.device)
        if order["again"]:
            # New bytes where those of the call before lay.
            arguments = refilled(self._arguments, arguments)
        effects = candidate.effects
        effects.hold(arguments if order["hold"] else None, elsewhere=not order["again"])
        if order["poison"] >= 0:
            self._poison(order["poison"], order["poisoned"])
        candidate.outputs.may_overlap = order["overlap"]
        candidate.impose(order["state"])
        given = [*tensors(arguments)]
        # On a GPU what is kept might take the memory that the call needs.
        before = candidate.state.kept() if order["effects"] and candidate.mode != "gpu" else []
        return arguments, given, before

    def _exported(self, order: Any, values: Any, arguments: Any, given: list[Any], before: list[Any]) -> Any:
        """What a call gave, and what it did beside that, if that is asked for."""
        candidate, attempt = self._candidate, self._dialogue.attempt
        beside = None
        if order["effects"]:
            held = attempt(Stage.EXPORT, lambda: candidate.state.held(order["held"], candidate.device))
            shares = candidate.shares(values, given)
            kept = order["keep_outputs"]
            overwrites = attempt(Stage.EXPORT, lambda: candidate.effects.overwrites(values, given, kept, before))
            bytes_held = attempt(Stage.EXPORT, lambda: candidate.effects.held_bytes(values, given))
            beside = [arguments if order["back"] else None, held, shares, overwrites, bytes_held]
        return attempt(Stage.EXPORT, lambda: candidate.exported(values, beside))

    def _in_order(self, *, other: bool) -> contextlib.AbstractContextManager[None]:
        """In what order threads and programs do the work of a call."""
        if not other:
            return contextlib.nullcontext()
        from kernelrl_judge.reordering import reordered

        return reordered(threads=self._candidate.mode == "cpu")

    def _poison(self, byte: int, sizes: Sequence[int]) -> None:
        """What a candidate allocates and does not write is no answer."""
        if self._candidate.device == "cuda":
            poison_device(byte, sizes)
        elif self._candidate.mode == "cpu":
            fill_fresh_memory(byte)


def _is_plain(values: Any) -> bool:
    import torch

    if type(values) in (list, tuple):
        return all(map(_is_plain, values))
    return type(values) in (torch.Tensor, torch.nn.Parameter)
