"""What a runner says of the operators of a call, as its judge weighs it: who computed, if not the kernels?

Left out is what only allocates, arranges or converts, and what works on little beside the inputs and outputs of the
call, in elements and in bytes: an element of eight bytes may stand for eight of one. Work on parts counts as work on
the whole, under whatever names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelrl_judge.building.imports import is_plain
from kernelrl_judge.operator_names import (
    ARRANGING,
    BACK,
    ITEM,
    LEFT,
    LOOKED_UP,
    OF_NUMBERS,
    PAST,
    RACED,
    STOPPED,
    is_torchs,
)

__all__ = ["computing", "computing_symbols", "raced"]

_LEAST_SHARE = 0.25
_FEW = 64
"""Elements that anybody may read as numbers, for sizes and conditions, and work on."""
_NUMBER_BYTES = 8
_MOST_NAMED = 64
_REDUCING = re.compile(r"aten::(?:sum|mean|prod|max|min|amax|amin|any|all)")
_OF_LISTS = re.compile(r"aten::_(?:foreach|fused|amp)_\w+")


def computing(found: Any, values: Any) -> list[str]:
    """Names of the operators of torch's that computed something of weight, and of the ways out of torch.

    Of weight is what takes or makes, all together, a quarter of the largest tensor of the call, and what makes, all
    together, a quarter of its outputs: of their elements, or of their bytes.

    Args:
        found: what `operators.called` gave; from an untrusted process.
        values: inputs of the call, and its outputs last.
    """
    entries = _entries(found)
    by_elements = _of_weight([entry[:3] for entry in entries], values, torch.Tensor.numel, _FEW)
    by_bytes = _of_weight([[entry[0], *entry[3:]] for entry in entries], values, _size, _FEW * _NUMBER_BYTES)
    return [*dict.fromkeys([*by_elements, *by_bytes])][:_MOST_NAMED]


def raced(found: Any) -> int:
    """Elements that a program of a launch read and another had written; of the same as `computing`."""
    return max((entry[1] for entry in _entries(found) if entry[0] == RACED), default=0)


def _entries(found: Any) -> list[Any]:
    return [
        entry
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, list) and [*map(type, entry)] == [str, int, int, int, int]
    ]


def _of_weight(entries: list[Any], values: Any, size: Callable[[torch.Tensor], int], least: int) -> list[str]:
    """Names by weight, ways out of torch first.

    Args:
        entries: names, and what each has taken and made.
        size: of a tensor, in the same unit.
        least: what counts as little in any call.
    """
    large = max(1.0, _LEAST_SHARE * max(map(size, _tensors(values)), default=0))
    outputs = _LEAST_SHARE * sum(map(size, _tensors(values[-1])))
    few = min(large, outputs) if outputs >= least else large
    weights = [(name, max(taken, made), made) for name, taken, made in entries]
    ways_out = [
        name
        for name, taken, _ in weights
        if name in (STOPPED, BACK)
        or (name.startswith(LOOKED_UP) and not is_plain(name.removeprefix(LOOKED_UP)))
        or ((name == PAST or name.startswith(LEFT)) and taken >= (max(large, least) if name == ITEM else few))
    ]
    operators = [entry for entry in weights if is_torchs(entry[0]) and not ARRANGING.fullmatch(entry[0])]
    # What takes no elements makes tables, too; as large as the outputs, it may be what was to be computed.
    of_numbers = [entry for entry in operators if entry[0].endswith(OF_NUMBERS)]
    if sum(made for _, _, made in of_numbers) < max(outputs / _LEAST_SHARE, least):
        operators = [entry for entry in operators if entry not in of_numbers]
    together = sum(taken for _, taken, _ in operators) >= large
    making = {name: made for name, _, made in operators if made and not _REDUCING.fullmatch(name)}
    enough = sum(making.values()) >= max(few, least)
    named = [
        (taken, name)
        for name, taken, _ in operators
        if together or _OF_LISTS.fullmatch(name) or (enough and name in making)
    ]
    return [*ways_out, *(name for _, name in sorted(named, reverse=True))]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def computing_symbols(names: Sequence[str]) -> list[str]:
    """Those of the imports of an extension (`building.imports`) that compute: neither arrange nor sum."""
    return [name for name in names if not ARRANGING.fullmatch(name) and name not in ("aten::sum", "aten::mean")]
