"""Which operators of torch a call goes through, from Python or from C++: who computes, if not the kernels?

`called` runs inside the runner, and what it says could be forged; `computing` runs in the judge and leaves out what
only allocates, arranges or converts, and what works on little beside the inputs and outputs of the call. Work
on parts counts as work on the whole.

The operators are those of torch's execution trace, which sees every thread, and what happens below operators of other
names. Its profiler sees them, too, but can then record nothing of the device any more in the same process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["called", "computing", "computing_symbols"]

_MOST = 64
_LEAST_SHARE = 0.25
_ARRANGING = re.compile(
    r"aten::_*(?:(?:new_)?(?:empty|zeros|ones|full)\w*|fill|zero|arange|scalar_tensor|lift_fresh|clone|copy|copy_from\w*|to_copy"
    r"|to|contiguous|detach\w*|alias\w*|view\w*|reshape\w*|unsafe_view|permute|transpose|t|expand\w*|squeeze|unsqueeze"
    r"|flatten|unflatten|slice\w*|select\w*|narrow\w*|split\w*|chunk|unbind|unfold|as_strided\w*|cat|stack|repeat"
    r"|constant_pad_nd|pad\w*|flip|roll|diagonal|movedim|real|imag|local_scalar_dense|item|is_\w+|equal|record_stream"
    r"|set|resize\w*|nested\w*|has_\w+|pin_memory|result_type|resolve_\w+|type_as|numpy_T"
    r"|swapaxes|ravel|[hvd]split|mT|mH|adjoint|concat\w*)_?"
)
_SUMMING = re.compile(r"aten::(?:sum|mean)")
_OF_LISTS = re.compile(r"aten::_(?:foreach|fused|amp)_\w+")
_LEAVING = frozenset(
    {"numpy", "__array__", "__dlpack__", "tolist", "__reduce_ex__", "storage", "untyped_storage", "_typed_storage"}
)
"""Methods that hand the elements of a tensor in host memory to something else than torch."""
_LEFT = "torch.Tensor."
_ITEM = f"{_LEFT}item"
_FEW_ITEMS = 64
"""Single elements that may be read as numbers, for sizes and conditions."""
_INTERPRETER = f"{os.sep}triton{os.sep}runtime{os.sep}"


class _Leaving(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if (
            name in _LEAVING
            and args
            and isinstance(args[0], torch.Tensor)
            and args[0].device.type == "cpu"
            and _INTERPRETER not in sys._getframe(1).f_code.co_filename
        ):
            _add(self.elements, _LEFT + name, args[0].numel())
        return func(*args, **(kwargs or {}))


def called(call: Callable[[], Any]) -> tuple[Any, list[list[Any]]]:
    """Make a call; returns its result, and its operators: name, and elements of the tensors that it took in all."""
    log = _Leaving()
    with _traced() as nodes, log:
        result = call()
    above = {node["id"]: node for node in nodes}
    found: dict[str, int] = {}
    for node in nodes:
        if node["name"] == "aten::_local_scalar_dense":
            _add(log.elements, _ITEM, 1)
        name, part = _outermost(node, above)
        # Where an operator takes lists, what it does with their elements tells how many there are.
        if name and not (part and found.get(name)):
            _add(found, name, sum(map(_elements, node.get("inputs", {}).get("shapes", ()))))
    return result, [[name, elements] for name, elements in (*log.elements.items(), *found.items())]


@contextlib.contextmanager
def _traced() -> Iterator[list[dict[str, Any]]]:
    """Operators that are called meanwhile, in every thread, as nodes of a trace; there when it has ended."""
    from torch._C import _profiler

    nodes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "trace.json")
        with _without_output():
            _profiler._add_execution_trace_observer(path)
            _profiler._enable_execution_trace_observer()
        try:
            yield nodes
        finally:
            with _without_output():
                _profiler._disable_execution_trace_observer()
                _profiler._remove_execution_trace_observer()
        with open(path, encoding="utf-8", errors="replace") as file:
            nodes += json.load(file)["nodes"]


def _add(found: dict[str, int], name: str, elements: int) -> None:
    if name in found or len(found) < _MOST:
        found[name] = found.get(name, 0) + elements


def _outermost(node: dict[str, Any], above: dict[int, dict[str, Any]]) -> tuple[str, bool]:
    """Name of the operator that a candidate has called, and whether the node is a part of it.

    No name for what arranges, and for how operators that arrange or sum do their work.

    Args:
        above: nodes by number; each names that of its parent.
    """
    name, part = "", False
    at: dict[str, Any] | None = node
    while at is not None:
        other = str(at["name"]).partition(".")[0]
        if other.startswith("aten::"):
            if _ARRANGING.fullmatch(other) or (at is not node and _SUMMING.fullmatch(other)):
                return "", False
            part = bool(name)
            name = other
        at = above.get(at["ctrl_deps"]) if at["ctrl_deps"] != at["id"] else None
    return name, part


def _elements(shape: Any) -> int:
    """Elements of a tensor of this shape; none for what is no tensor."""
    if not shape:
        return 0
    if isinstance(shape[0], list):
        return sum(map(_elements, shape))
    count = 1
    for size in shape:
        count *= int(size)
    return count


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """The trace tells that it begins and ends, where a candidate's own words belong."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def computing(found: Any, values: Any) -> list[str]:
    """Names of the operators of torch's that computed something of weight, and of the ways out of torch.

    Args:
        found: what `called` gave; from an untrusted process.
        values: inputs and outputs of the call.
    """
    least = max(1.0, _LEAST_SHARE * _largest(values))
    return [
        entry[0]
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int)
        # Operators of other names are the candidate's own.
        and entry[0].startswith(("aten::", _LEFT))
        and (entry[1] >= (max(least, _FEW_ITEMS) if entry[0] == _ITEM else least) or _OF_LISTS.fullmatch(entry[0]))
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


def computing_symbols(names: Sequence[str]) -> list[str]:
    """Those of the imports of an extension (`building.imports`) that compute: neither arrange nor sum."""
    return [name for name in names if not _ARRANGING.fullmatch(name) and name not in ("aten::sum", "aten::mean")]
