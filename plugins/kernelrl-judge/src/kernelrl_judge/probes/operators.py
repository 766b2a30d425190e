"""Probe `operators`: computation by torch's operators in place of the candidate's kernels, and the kernels that ran."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.probes.computing import computing_operators
from kernelrl_judge.probes.probe import CallEffects, DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.operator_names import arranges
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.reference_budget import call_seconds

__all__ = ["OperatorsProbe", "bytes_moved"]

_MOST_NAMED = 16


class OperatorsProbe(Probe):
    """Torch's operators and the candidate's launches are listed in every call."""

    name = "operators"

    def __init__(self) -> None:
        self.computing: tuple[str, ...] | None = None
        """Operators that computed; None before the first call that counts."""
        self.launches: tuple[str, ...] | None = None
        """Own kernels that the calls launched; None where that is not known."""
        self._bytes_of_reference: int | None = None

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, lists_operators=True)

    def compare(self, call: DirectCall, effects: CallEffects) -> Mismatch | None:
        executed = effects.operators if isinstance(effects.operators, dict) else {}
        self._add_launches(executed.get("launches"), call.device)
        if call.counts_operators:
            reference, trial = call.reference, call.trial
            names = computing_operators(
                executed.get("operators"),
                trial.inputs,
                trial.expected,
                reference.settings.library_share,
                lambda: self._of_reference(reference, trial.inputs),
            )
            known = self.computing or ()
            self.computing = tuple(dict.fromkeys((*known, *names)))
        return None

    def _add_launches(self, found: Any, device: str) -> None:
        names = [str(name) for name in found] if isinstance(found, list) else []
        # On a GPU kernels may be launched in ways that are not observed.
        if names or device == "cpu":
            self.launches = tuple(dict.fromkeys((*(self.launches or ()), *names)))[:_MOST_NAMED]

    def _of_reference(self, reference: Reference, inputs: list[Any]) -> int | None:
        """Bytes that the operators of the reference move; None if it is slow."""
        if call_seconds(reference) > LIMITS.slow_reference_s:
            return None
        if self._bytes_of_reference is None:
            self._bytes_of_reference = bytes_moved(reference, inputs)
        return self._bytes_of_reference


def bytes_moved(reference: Reference, inputs: list[Any]) -> int:
    """Bytes of the tensors that the operators of a call of the reference take and return, except those that arrange."""
    moved = _Moved()
    with moved:
        reference.expected(inputs)
    return moved.total


class _Moved(TorchDispatchMode):
    """Adds bytes of the tensors of operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default would import torch's compiler.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        is_operator = isinstance(func, torch._ops.OpOverload)
        if is_operator and not arranges(func._schema.name):
            self.total += sum(_bytes(tensor) for tensor in tensors((args, kwargs or {}, returned)))
        return returned


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
