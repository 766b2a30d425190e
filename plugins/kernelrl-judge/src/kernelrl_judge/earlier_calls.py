"""What earlier calls returned and were given, which later ones have to leave alone: read once more after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge import protocol
from kernelrl_judge.comparing import compare_bytes, compare_described
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.running import Runner
from kernelrl_judge.trees import tensors
from kernelrl_judge.value_trees import decode_tree, encode_tree

__all__ = ["EarlierCalls"]

_FEW_BYTES = 16 << 20
"""Of outputs that are read again, beyond those of one call, and of inputs."""


class EarlierCalls:
    """Single calls of a candidate, of which the runner keeps some outputs and inputs.

    Args:
        expect: receives the next frame, which has to be of a kind.
    """

    def __init__(
        self, runner: Runner, exchange: Exchange, expect: Callable[[FrameKind], protocol.Frame], device: str
    ) -> None:
        self._runner = runner
        self._exchange = exchange
        self._expect = expect
        self._device = device
        self._returned: list[Any] = []
        self._given: Any = None
        self._given_before: Any = None

    def give(self, inputs: Any, *, again: bool) -> bool:
        """Take note of the inputs of the next call; returns whether the runner is to keep them.

        Args:
            again: whether they lie where those of the call before lay.
        """
        holds = leaves_bytes(inputs) <= _FEW_BYTES
        self._given_before = self._given_before if again else self._given
        self._given = inputs if holds else None
        return holds

    def took(self, output: Any, kept: int) -> None:
        """Take note of what a call returned.

        Args:
            kept: of how many calls the runner keeps outputs.
        """
        self._returned = [*self._returned, output][-kept:] if kept else []

    def read_again(self, *, inputs: bool) -> tuple[list[int], Mismatch | None]:
        """Which output tensors of an earlier call are not what they were, and which input is not.

        Args:
            inputs: whether calls have to leave their inputs as they are.
        """
        # The last one nobody could have come back to.
        back = [*range(1, len(self._returned))][: max(1, _FEW_BYTES // max(1, leaves_bytes(self._returned[:1])))]
        given = self._given_before if inputs else None
        if not back and given is None:
            return [], None
        made = [self._returned[-1 - number] for number in back]
        self._exchange.make_room(leaves_bytes([made, self._given_before]))
        self._runner.send(FrameKind.RETURN, encode_tree({"kept": back}))
        described = decode_tree(self._expect(FrameKind.RESULT).body)
        if not isinstance(described, list) or len(described) != 2 or not isinstance(described[0], list):
            raise protocol.ProtocolError("not outputs and inputs of earlier calls")
        if len(described[0]) != len(made):
            raise protocol.ProtocolError("outputs of other calls")
        lost = {number for pair in zip(made, described[0], strict=True) for number in self._changed(*pair)}
        wrong = None
        if given is not None:
            wrong = compare_described(given, described[1], self._device)
            wrong = wrong or compare_bytes(given, self._exchange.collect(given, described[1]))
        return sorted(lost), None if wrong is None else Mismatch("inputs", wrong.output)

    def _changed(self, made: Any, described: Any) -> list[int]:
        found = tensors(made)
        if not isinstance(described, list) or len(described) != len(found):
            raise protocol.ProtocolError("not the tensors of an output")
        return [
            number
            for number, (tensor, leaf) in enumerate(zip(found, described, strict=True))
            # Of one that lay in an input nothing is kept.
            if leaf is not None
            and (
                compare_described(tensor, leaf, self._device) is not None
                or compare_bytes(tensor, self._exchange.collect(tensor, leaf)) is not None
            )
        ]
