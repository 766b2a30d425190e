"""What a call leaves in its inputs and in the state of its module, against what the reference leaves there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from kernelrl_core.api.evaluators import Finding, Mismatch, Severity
from kernelrl_judge.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.protocol import ProtocolError
from kernelrl_judge.reference import Reference, Trial
from kernelrl_judge.running import KEPT_OUTPUT_BYTES
from kernelrl_judge.sharing import OF_MODULE
from kernelrl_judge.trees import leaves

__all__ = [
    "described_tensors",
    "lacking_state",
    "other_kept",
    "other_state",
    "overwritten",
    "printed",
    "returned_inputs",
    "workspace_returned",
    "wrong_inputs",
    "wrong_memory",
    "wrong_state",
]

_MOST_HELD = 8
"""Times what outputs need: who makes whole blocks may return a part of one."""
_FEW_BYTES = 256 << 10


def wrong_inputs(trial: Trial, after: Any, shares: Collection[list[int]], limit: Tolerance) -> Mismatch | None:
    """How inputs after a call, whose description is that of those before it, are not what the reference leaves.

    An input that the reference works on in place and returns may stay as it was: its new values are in the output.

    Args:
        shares: tensors of the reference that have memory in common, from `sharing.shared_memory`.
    """
    if trial.inputs_after is None:
        wrong = compare_bytes(trial.inputs, after)
        return None if wrong is None else Mismatch("inputs", wrong.output)
    returned = returned_inputs(shares)
    number = -1
    for path, sent, want, got in leaves(trial.inputs, trial.inputs_after, after):
        if not isinstance(sent, torch.Tensor):
            continue
        number += 1
        same = compare_bytes(sent, got) is None
        if compare_bytes(sent, want) is None:
            if not same:
                return Mismatch("inputs", path)
        elif not (same and number in returned):
            wrong = compare_values(want, got, limit)
            if wrong is not None:
                return Mismatch("effects", f"input {path}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None


def returned_inputs(shares: Collection[list[int]]) -> set[int]:
    """Inputs whose memory an output lies in: numbers among their tensors."""
    return {-1 - pair[1] for pair in shares if pair[1] < 0}


def wrong_state(trial: Trial, after: Mapping[str, torch.Tensor], limit: Tolerance) -> Mismatch | None:
    """How the state after a call is not what the reference leaves, among what is in both."""
    for name, want in trial.state_after.items():
        wrong = compare_values(want, after[name], limit) if name in after else None
        if wrong is not None:
            return Mismatch("effects", f"state {name}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None


def described_tensors(state: Mapping[str, torch.Tensor]) -> dict[str, list[Any]]:
    """Type and shape of what a runner is to hand back, by name."""
    return {name: [str(tensor.dtype).removeprefix("torch."), [*tensor.shape]] for name, tensor in state.items()}


def wrong_memory(shares: Any, allowed: Collection[list[int]]) -> Mismatch | None:
    """Which outputs lie in memory that those of the reference do not share.

    Args:
        shares: what `sharing.shared_memory` gave; from an untrusted process.
        allowed: the same of the reference.
    """
    for pair in shares if isinstance(shares, list) else (None,):
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
            raise ProtocolError("not pairs of tensors")
        if pair not in allowed:
            other = f"output {pair[1]}" if pair[1] >= 0 else f"input {-1 - pair[1]}"
            other = "a parameter or buffer" if pair[1] == OF_MODULE else other
            return Mismatch("memory", f"[{pair[0]}]", expected="memory of its own", actual=f"that of {other}")
    return None


def lacking_state(
    reference: Reference, left: Mapping[str, torch.Tensor], after: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """What is to be said of a kernel that has nothing where a call of the reference left something new in its state.

    A buffer that is neither saved nor read by later calls may be scratch memory, which nobody else needs.
    """
    before = reference.constructed
    lacking = [
        name for name in sorted(left.keys() - after.keys()) if compare_bytes(left[name], before[name]) is not None
    ]
    lacking = [name for name in lacking if name in reference.state or reference.reads(name)]
    if not lacking:
        return ()
    evidence = f"the reference's calls change its state, {', '.join(lacking[:4])}, which the kernel has not"
    return (Finding("effects", Severity.SUSPECT, evidence, checker="judge"),)


def other_state(
    reference: Reference, wanted: Mapping[str, torch.Tensor], after: Mapping[str, Any], limit: Tolerance
) -> tuple[Finding, ...]:
    """What is to be said of state that holds something else than it should, where that is no proof.

    A buffer that is not saved may be scratch memory, and a parameter may have been prepared where it is.
    """
    wrong = sorted(name for name, want in wanted.items() if _differs(want, after[name], limit))
    if not wrong:
        return ()
    names = ", ".join(wrong[:4])
    if any(name in reference.unsaved for name in wrong):
        evidence = f"a call leaves something else in {names} than the reference does"
    else:
        evidence = (
            f"a call changes {names}, which the reference leaves as it is: what is prepared of parameters belongs into "
            "tensors of its own"
        )
    return (Finding("effects", Severity.SUSPECT, evidence, checker="judge"),)


def other_kept(
    wanted: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], limit: Tolerance
) -> tuple[Finding, ...]:
    """What is to be said of a kernel whose calls do not keep outside of its state what those of the reference keep.

    Args:
        wanted: `Trial.kept`.
        after: what the kernel has of that, of the same types and shapes.
    """
    wrong = sorted(name for name, want in wanted.items() if name not in after or _differs(want, after[name], limit))
    if not wrong:
        return ()
    evidence = (
        f"the reference's calls leave {', '.join(wrong[:4])} in its module, and the kernel's something else, or none"
    )
    return (Finding("effects", Severity.SUSPECT, evidence, checker="judge"),)


def _differs(want: torch.Tensor, got: Any, limit: Tolerance) -> bool:
    # What is the same bit by bit, as nearly all is, is told in a tenth of the time.
    return compare_bytes(want, got) is not None and compare_values(want, got, limit) is not None


def overwritten(overwrites: Any, reference: Reference) -> tuple[Finding, ...]:
    """What is to be said of outputs that lie where those of earlier calls lie, whatever they hold.

    Args:
        overwrites: numbers among the tensors of an output; from an untrusted process.
    """
    if not isinstance(overwrites, list) or not all(type(number) is int for number in overwrites):
        raise ProtocolError("not numbers of tensors")
    lost = [number for number in overwrites if number not in reference.overwrites()] if overwrites else []
    if not lost:
        return ()
    evidence = (
        f"output {lost[0]} lies in memory that was there before the call, or that an earlier one returned, whose "
        "result is lost: a call has to allocate its outputs, or to return copies"
    )
    return (Finding("overwritten", Severity.SUSPECT, evidence, checker="judge"),)


def workspace_returned(held: Any, expected: Any, reference: Reference) -> tuple[Finding, ...]:
    """What is to be said of outputs that are views of much more memory than they need.

    Args:
        held: bytes that they keep from being given back; from an untrusted process.
    """
    if type(held) is not int:
        raise ProtocolError("not a number of bytes")
    needed = max(leaves_bytes(expected), reference.facts["held_bytes"])
    if held <= max(_MOST_HELD * needed, needed + _FEW_BYTES):
        return ()
    evidence = (
        f"outputs of {needed} bytes lie in memory of {held} bytes, which stays as long as a result does: "
        "a part of a workspace has to be copied"
    )
    return (Finding("workspace_returned", Severity.SUSPECT, evidence, checker="judge"),)


def printed(count: int) -> tuple[Finding, ...]:
    """What is to be said of a kernel whose calls after the first have printed so many bytes: a log keeps a part."""
    if count <= KEPT_OUTPUT_BYTES:
        return ()
    return (Finding("prints", Severity.SUSPECT, f"calls after the first printed {count} bytes", checker="judge"),)
