"""Operators of torch that computed in a call, in place of the candidate's kernels.

Operators that only allocate, arrange or convert do not count. The others count by the bytes that they move, compared
with the tensors of the task. A helper moves many bytes and leaves few: it is an operator whose results no kernel reads
and no caller gets, except small ones, such as the largest absolute value for a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.operator_names import always_counts, arranges, finishes
from kernelrl_judge.protocol.trees import leaves_bytes, tensors

__all__ = ["computing_operators", "computing_symbols"]

_MOST_NAMED = 64
_LEAVING = "torch.Tensor."


@attrs.frozen
class _Row:
    """Bytes of the calls of one operator."""

    name: str
    taken: int
    made: int
    kept: int
    """Bytes of results that own code could read, or that the call returned."""

    @property
    def leaves_torch(self) -> bool:
        return self.name.startswith(_LEAVING)


def computing_operators(
    found: Any,
    inputs: Any,
    outputs: Any,
    share: float = 0.35,
    bytes_of_reference: Callable[[], int | None] = lambda: None,
) -> list[str]:
    """Names of the operators of torch that computed, and of methods that leave torch, the largest first.

    Operators computed if one of these holds:

    - matrix products, convolutions, sorts and scans moved more than a sixty-fourth of the bytes of the tensors;
    - operators with more than a step or two per element made a part of the outputs larger than `share`;
    - together they moved more than `share` of the largest tensor, and either left more than `share` of the outputs to
      own code or to the caller, or moved half of the bytes that the reference moves.

    Args:
        found: from `kernelrl_judge.runner.operators`, in an untrusted process.
        share: share of the task's tensors that operators may move; 0: none.
        bytes_of_reference: bytes that the operators of the reference move in a call; None if that is not known. Called
            only where it decides.
    """
    rows = _rows(found)
    sizes = [_bytes(tensor) for tensor in tensors((inputs, outputs))]
    much = _limit(max(sizes, default=0), share)
    many = _limit(leaves_bytes(outputs), share)
    taken = sum(row.taken for row in rows)
    made = sum(row.made for row in rows)
    heavy_moved = sum(max(row.taken, row.made) for row in rows if always_counts(row.name))
    heavy_kept = sum(row.kept for row in rows if not finishes(row.name))
    is_much = max(taken, made) >= much
    is_heavy = heavy_moved > _limit(sum(sizes), min(share, LIMITS.heavy_operators_share)) or heavy_kept >= many
    if not (is_heavy or is_much):
        return []
    if not is_heavy and not _does_the_task(rows, taken + made, many, share, bytes_of_reference):
        return []
    rows.sort(key=lambda row: -max(row.taken, row.made))
    return [row.name for row in rows][:_MOST_NAMED]


def _does_the_task(
    rows: Sequence[_Row],
    moved: int,
    many: float,
    share: float,
    bytes_of_reference: Callable[[], int | None],
) -> bool:
    """Whether operators on much memory are more than helpers."""
    if share == 0 or any(row.leaves_torch for row in rows):
        return True
    if sum(row.kept for row in rows) >= many:
        return True
    of_reference = bytes_of_reference()
    return of_reference is None or moved >= LIMITS.most_of_the_work * of_reference


def _rows(found: Any) -> list[_Row]:
    rows = []
    for entry in found if isinstance(found, list) else ():
        match entry:
            case [str(name), int(taken), int(made), int(kept)]:
                if name.startswith(_LEAVING) or (name.startswith("aten::") and not arranges(name)):
                    rows.append(_Row(name, taken, made, kept))
    return rows


def _limit(size: int, share: float) -> float:
    """Bytes from which operators count, for tensors of a size."""
    return max(LIMITS.operator_bytes, share * size)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def computing_symbols(names: Sequence[str]) -> list[str]:
    """Symbols of an extension (`kernelrl_build.imports`) that compute: those that neither arrange nor sum, call no
    Python objects as a class of pybind11 does, and register no operators."""
    other = ("aten::sum", "aten::mean", "PyObject_", "torch::jit::parse")
    return [name for name in names if not (arranges(name) or name.startswith(other))]
