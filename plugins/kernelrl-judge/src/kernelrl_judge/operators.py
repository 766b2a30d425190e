"""Which operators of torch a call goes through, from Python or from C++: who computes, if not the kernels?

`called` runs inside the runner, and what it says could be forged; `computing` runs in the judge and leaves out what
only allocates, arranges, converts or sums, and what works on little beside the inputs and outputs of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["called", "computing"]

_MOST = 64
_LEAST_SHARE = 0.25
_ARRANGING = re.compile(
    r"aten::_*(?:(?:new_)?(?:empty|zeros|ones|full)\w*|fill|zero|arange|scalar_tensor|lift_fresh|clone|copy\w*|to_copy"
    r"|to|contiguous|detach\w*|alias\w*|view\w*|reshape\w*|unsafe_view|permute|transpose|t|expand\w*|squeeze|unsqueeze"
    r"|flatten|unflatten|slice\w*|select\w*|narrow\w*|split\w*|chunk|unbind|unfold|as_strided\w*|cat|stack|repeat"
    r"|constant_pad_nd|pad\w*|flip|roll|diagonal|movedim|real|imag|local_scalar_dense|item|is_\w+|equal|record_stream"
    r"|set|resize\w*|sum|mean|nested\w*|has_\w+|pin_memory|result_type)_?"
)


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first operator imports the compiler of torch: seconds, in every runner anew, on its device.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func.name()).partition(".")[0]
        seen = _largest((args, kwargs, result))
        if name in self.elements or len(self.elements) < _MOST:
            self.elements[name] = max(seen, self.elements.get(name, 0))
        return result


def called(call: Callable[[], Any]) -> list[list[Any]]:
    """Operators of one call, in order: name, and elements of the largest tensor that it took or gave."""
    with _Log() as log:
        call()
    return [[name, elements] for name, elements in log.elements.items()]


def computing(found: Any, values: Any) -> list[str]:
    """Names of the operators of torch's that computed something of weight.

    Args:
        found: what `called` gave; from an untrusted process.
        values: inputs and outputs of the call.
    """
    least = _LEAST_SHARE * _largest(values)
    return [
        entry[0]
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int)
        # Operators of other names are the candidate's own.
        and entry[0].startswith("aten::")
        and entry[1] >= least
        and not _ARRANGING.fullmatch(entry[0])
    ]


def _largest(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    if isinstance(value, dict):
        return max(map(_largest, value.values()), default=0)
    return 0
