"""Which operators of torch a call goes through, from Python or from C++: who computes, if not the kernels?

`called` runs inside the runner, and what it says could be forged; `kernelrl_judge.computing` weighs it in the judge.
What is computed of parameters alone prepares them.

The operators are those of torch's execution trace, which sees every thread, and what happens below operators of other
names. Its profiler sees them, too, but can then record nothing of the device any more in the same process. A candidate
can have the trace stop: a second list (`listing`) stands beside it, and marks at its beginning and its end.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import torch
from torch.autograd import _enable_record_function
from torch.overrides import TorchFunctionMode

from kernelrl_judge import calls_back
from kernelrl_judge.listing import Listing
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
    SUMMING,
    is_torchs,
    plain,
)
from kernelrl_judge.provenance import Watch

__all__ = ["called", "listing_cost"]

_REGISTERED = re.compile(r"registered at (?!\S*(?:aten/src/ATen|torch/csrc|/torch/))")
"""An implementation of an operator that did not come with torch."""
_REPLACED = ", replaced"
_WITHIN = {
    # How operators that arrange or sum do their work.
    "aten::sum": frozenset({"aten::sum"}),
    "aten::mean": frozenset({"aten::mean", "aten::sum", "aten::div_"}),
    "aten::repeat": frozenset({"aten::add"}),
}
_EIGHT_BITS = re.compile(r"Tensor\(c10::Float8\w+\)")
_FLOATING = re.compile(r"Tensor\((?:float|double|c10::(?:Half|BFloat16|Float8\w+))\)")
_WHOLE = re.compile(
    r"Tensor\((?:bool|(?:un)?signed char|char|(?:unsigned )?(?:short|long)?(?: ?int)?|c10::qu?int\w+)\)"
)
"""Quantised numbers are whole ones: to make them is to divide, to round and to bound."""
_SMALL = re.compile(r"Tensor\((?:(?:un)?signed char|char|(?:unsigned )?short(?: int)?)\)")
_LARGE = re.compile(r"Tensor\((?:unsigned )?(?:int|long(?: int)?)\)")
_NUMBERS = ("Tensor(double)", "Tensor(long int)")
"""What operators make of numbers of Python's."""
_CONVERTED = "aten::to, of fractions to whole numbers"
_NARROWED = "aten::to, of whole numbers to fewer bits"
_ROUNDED = "aten::to, of fractions to eight bits"
_LEAVING = frozenset(
    {"numpy", "__array__", "__dlpack__", "tolist", "__reduce_ex__", "storage", "untyped_storage", "_typed_storage"}
    | {"apply_", "map_", "map2_"}
)
"""Methods that hand the elements of a tensor in host memory to something else than torch."""
_MARKS = 2
"""Of a trace: at its beginning, and at its end."""
_UNTRACED = ", not in torch's trace"
_MEASURED = 32
_MEASUREMENTS = 5
_INTERPRETER = f"{os.sep}triton{os.sep}runtime{os.sep}"


class _Leaving(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions = 0
        self.left: dict[str, list[int]] = {}
        """Elements and bytes by the way that they took."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions += 1
        name = getattr(func, "__name__", "")
        if (
            name in _LEAVING
            and args
            and isinstance(args[0], torch.Tensor)
            and args[0].device.type == "cpu"
            and _INTERPRETER not in sys._getframe(1).f_code.co_filename
        ):
            self.add(LEFT + name, args[0].numel(), args[0].element_size())
        return func(*args, **(kwargs or {}))

    def add(self, name: str, elements: int, element_bytes: int) -> None:
        """Elements have gone some way."""
        before = self.left.get(name, (0, 0))
        self.left[name] = [before[0] + elements, before[1] + elements * element_bytes]


def called(call: Callable[[], Any], watch: Watch | None = None) -> tuple[Any, list[list[Any]]]:
    """Make a call.

    Args:
        watch: begun in the call once its inputs are there; ended after it.

    Returns:
        Its result, and its operators: name, elements of the tensors that it took in all, and of those that it made,
        and the bytes of both.
    """
    log = _Leaving()
    parameters, mark = _parameters(), torch.empty(0)
    listing = Listing() if watch is None else watch
    listing.of(parameters)
    with _traced() as nodes, log:
        for tensor in (mark, *parameters):
            torch.ops.aten.alias(tensor)
        if watch is None:
            listing.begin()
        try:
            result = call()
        finally:
            listing.end()
            torch.ops.aten.alias(mark)
    listing.seen = len(nodes), log.functions
    nodes.sort(key=lambda node: int(node["id"]))
    aliases = [node for node in nodes if node["name"] == "aten::alias"]
    none_any_more = listing.overwritten()
    given = [node for number, node in enumerate(aliases[1 : 1 + len(parameters)]) if number not in none_any_more]
    preparing = _preparing(nodes, {place for node in given for place in _places(node["outputs"])})
    found = _weighed([node for node in nodes if node["id"] not in preparing], {node["id"]: node for node in nodes})
    for node in nodes:
        if node["name"] == "aten::_local_scalar_dense":
            log.add(ITEM, 1, _bytes(node["inputs"], least=1))
    for node in _replaced(nodes):
        found[f"{plain(node['name'])}{_REPLACED}"] = _weight(node)
    found |= _untraced(listing.listed, nodes)
    if watch is not None and watch.strange:
        log.left[PAST] = [watch.strange, watch.strange_bytes]
    if watch is not None and watch.raced:
        log.left[RACED] = [watch.raced, watch.raced]
    if watch is not None and watch.leads_back:
        log.left[BACK] = [1, 1]
    if watch is not None and watch.tells:
        log.left |= {f"{LOOKED_UP}{name}": (1, 1) for name in calls_back.looked_up()}
    if len([node for node in aliases if node["inputs"]["values"] == aliases[0]["inputs"]["values"]]) < _MARKS:
        log.left[STOPPED] = [1, 1]
    left = [[name, elements, elements, count, count] for name, (elements, count) in log.left.items()]
    return result, [*left, *([name, *weight] for name, weight in found.items())]


def _untraced(listed: dict[str, list[int]], nodes: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Operators that were called more often than the trace has them: elements taken and made, and bytes."""
    traced = Counter(plain(node["name"]) for node in nodes)
    return {
        f"{name}{_UNTRACED}": weight
        for name, (calls, *weight) in listed.items()
        if calls > traced[name] and not ARRANGING.fullmatch(name)
    }


@functools.cache
def listing_cost() -> tuple[float, float]:
    """What listing costs for each operator in the trace and for each function of torch, in seconds: by doing it."""
    tensor = torch.zeros(4, 4)

    def least_s(function: Callable[[], Any]) -> float:
        times = []
        for _ in range(_MEASUREMENTS):
            started = time.perf_counter()
            for _ in range(_MEASURED):
                function()
            times.append(time.perf_counter() - started)
        return min(times) / _MEASURED

    functions = (lambda: tensor + tensor), (lambda: tensor.shape)
    alone = [*map(least_s, functions)]
    listing = Listing()
    with _traced() as nodes, _Leaving():
        listing.begin()
        listed = [*map(least_s, functions)]
        listing.end()
    operator_s, function_s = (max(0.0, with_s - without_s) for with_s, without_s in zip(listed, alone, strict=True))
    # What is called from Python stands in the trace more than once.
    return operator_s * _MEASURED * _MEASUREMENTS / max(1, len(nodes)), function_s


def _parameters() -> list[torch.Tensor]:
    """Parameters and buffers of all models."""
    models = [held for held in gc.get_objects() if issubclass(type(held), torch.nn.Module)]
    kinds = [vars(model).get(kind) for model in models for kind in ("_parameters", "_buffers")]
    held = [value for kind in kinds if isinstance(kind, dict) for value in dict.values(kind)]
    return [
        value for value in held if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    ]


def _preparing(nodes: list[dict[str, Any]], places: set[int]) -> set[int]:
    """Numbers of the operators that work on nothing but parameters, and on what such operators made.

    Args:
        places: of the memory of parameters. Where something else is written there, they are none any more.
    """
    found = set()
    places = set(places)
    for node in nodes:
        given, made = _places(node.get("inputs", {})), _places(node.get("outputs", {}))
        if given and given <= places and is_torchs(node["name"]):
            found.add(node["id"])
            # What is only moved may be a place to write to.
            if not ARRANGING.fullmatch(plain(node["name"])):
                places |= made
        elif given & made:
            places -= made
    return found


def _places(side: dict[str, Any]) -> set[int]:
    """The memory of the tensors on a side of an operator, numbers left out."""
    found: set[int] = set()
    for value, kind in zip(side.get("values", ()), side.get("types", ()), strict=False):
        if kind in _NUMBERS and value[3] == 1:
            continue
        if kind.startswith("Tensor("):
            found.add(value[1])
        elif "Tensor(" in kind:
            found |= {item[1] for item in value if isinstance(item, list) and len(item) > 1}
    return found


def _weighed(nodes: list[dict[str, Any]], above: dict[int, dict[str, Any]]) -> dict[str, list[int]]:
    """Elements taken and made by the outermost operators that compute, and bytes."""
    found: dict[str, list[int]] = {}
    whole: set[int] = set()
    for node in nodes:
        name, top = _outermost(node, above)
        if not name or (top != node["id"] and top in whole):
            continue
        weight = _weight(node)
        # Where an operator takes lists, what it does with their elements tells how many there are.
        if top == node["id"] and (any(weight) or not _places(node.get("inputs", {}))):
            whole.add(top)
        name += "" if weight[0] else OF_NUMBERS
        found[name] = [sum(pair) for pair in zip(found.get(name, (0, 0, 0, 0)), weight, strict=True)]
    return found


@contextlib.contextmanager
def _traced() -> Iterator[list[dict[str, Any]]]:
    """Operators that are called meanwhile, in every thread, as nodes of a trace; there when it has ended."""
    from torch._C import _profiler

    nodes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "trace.json")
        with _without_output():
            # A candidate may have had nothing recorded any more.
            _enable_record_function(True)
            _profiler._add_execution_trace_observer(path)
            _profiler._enable_execution_trace_observer()
        try:
            yield nodes
        finally:
            with _without_output():
                _profiler._disable_execution_trace_observer()
                _profiler._remove_execution_trace_observer()
        # Where there is none, nothing stands in it.
        with contextlib.suppress(OSError, ValueError, KeyError), open(path, encoding="utf-8", errors="replace") as file:
            nodes += _parsed(file.read())["nodes"]


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # It is stricter: numbers that are none, say.
        return json.loads(text)


def _weight(node: dict[str, Any]) -> list[int]:
    """Elements taken and made by an operator, and the bytes of both."""
    sides = [node.get(side, {}) for side in ("inputs", "outputs")]
    taken, made = (sum(map(_elements, side.get("shapes", ()))) for side in sides)
    return [taken, made, *map(_bytes, sides)]


def _bytes(side: dict[str, Any], least: int = 2) -> int:
    """Of the tensors on a side of an operator with so many elements at least: others may be numbers of Python's."""
    found = 0
    for value, kind in zip(side.get("values", ()), side.get("types", ()), strict=False):
        each = [value] if kind.startswith("Tensor(") else value if "Tensor(" in kind else ()
        found += sum(
            item[3] * item[4] for item in each if isinstance(item, list) and len(item) > 4 and item[3] >= least
        )
    return found


def _replaced(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operators of torch's that do something else than torch's."""
    known: dict[str, bool] = {}
    for node in nodes:
        operator = _operator(node)
        if operator.startswith("aten::") and operator not in known:
            known[operator] = bool(_REGISTERED.search(torch._C._dispatch_dump(operator)))
    return [node for node in nodes if known.get(_operator(node))]


def _operator(node: dict[str, Any]) -> str:
    """Name of an operator with that of its overload."""
    schema = next((str(attr["value"]) for attr in node.get("attrs", ()) if attr["name"] == "op_schema"), "")
    return schema.partition("(")[0]


def _outermost(node: dict[str, Any], above: dict[int, dict[str, Any]]) -> tuple[str, int]:
    """Name and number of the operator that a candidate has called; no name for what only arranges.

    What stands below an operator that arranges or sums, and is not how it does its work, counts as if it stood alone.

    Args:
        above: nodes by number; each names that of its parent.
    """
    own = plain(node["name"])
    if not is_torchs(own):
        return "", 0
    arranges = bool(ARRANGING.fullmatch(own)) and not _steps(node)
    converted = _converted(node) if arranges else ""
    if arranges and not converted:
        return "", 0
    name, top = converted or own, int(node["id"])
    at = node
    while at["ctrl_deps"] != at["id"] and at["ctrl_deps"] in above:
        at = above[at["ctrl_deps"]]
        other = plain(at["name"])
        if own in _WITHIN.get(other, ()):
            return "", 0
        if is_torchs(other) and not ARRANGING.fullmatch(other) and not SUMMING.fullmatch(other):
            name, top = other, int(at["id"])
    return name, top


def _converted(node: dict[str, Any]) -> str:
    """Name of a conversion that rounds and bounds fractions, to whole numbers or to eight bits, or takes the remainder
    of whole numbers; empty text for any other operator."""
    types = node.get("inputs", {}).get("types", ())
    if node["name"] != "aten::copy_" or len(types) < 2:
        return ""
    if _SMALL.fullmatch(types[0]) and _LARGE.fullmatch(types[1]):
        return _NARROWED
    if not _FLOATING.fullmatch(types[1]):
        return ""
    if _EIGHT_BITS.fullmatch(types[0]):
        return "" if _EIGHT_BITS.fullmatch(types[1]) else _ROUNDED
    return _CONVERTED if _WHOLE.fullmatch(types[0]) else ""


def _steps(node: dict[str, Any]) -> bool:
    """Whether an operator makes fractions at equal distances. Whole numbers are places."""
    return plain(node["name"]) == "aten::arange" and "Double" in node.get("inputs", {}).get("types", ())


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
