"""The operators of torch that a call executes, and the own kernels that it launches.

Both lists are made inside the runner and are evidence only; the judge decides with `kernelrl_judge.probes.computing`.
Operators on parameters alone prepare them and are omitted. Operators in threads that started before the call are not
listed. Functions that an extension imports are listed by `kernelrl_build.imports`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelrl_judge.protocol.operator_names import OF_KERNELS, arranges
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.runner.launches import OwnCalls, observed

__all__ = ["Listed", "Listing", "current", "listed"]

_TORCH_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "inductor", "quantized", "mkl", "mkldnn", "onednn", "fbgemm", "sparse"}
)
"""Namespaces of operators that come with torch."""
_ALLOCATING = re.compile(r"aten::(new_)?(empty|zeros|full)\w*|aten::(zero|fill)_")
_FINISHING = frozenset({"aten::sum", "aten::mean", "aten::tril", "aten::tril_", "aten::triu", "aten::triu_"})
"""Operators that may finish memory which the call allocated and no operator of torch wrote: results of kernels."""
_BACKENDS = {
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.CPU),
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA),
}
_LEAVING = frozenset(
    {
        "numpy",
        "__array__",
        "__dlpack__",
        "tolist",
        "__reduce_ex__",
        "storage",
        "untyped_storage",
        "_typed_storage",
        "apply_",
        "map_",
        "map2_",
    }
)
"""Methods that pass the elements of a tensor to code outside of torch; of a tensor on a GPU only `tolist` does."""
_INTERPRETER = f"{os.sep}triton{os.sep}runtime{os.sep}"


@attrs.frozen
class Listed:
    """What a call executed."""

    operators: list[list[Any]]
    """For each operator of torch, and for each method that passes elements to code outside of torch: its name, the
    bytes of the tensors that it took, of those that it returned, and of those of them that own code could read or that
    the call returned."""
    launches: list[str]
    """Names of the kernels of the candidate that were launched, and of functions of its extensions."""


@attrs.frozen
class _Made:
    """Memory that an operator of torch wrote."""

    name: str
    size: int
    storage: StorageWeakRef


class _Operators(TorchDispatchMode):
    """Counts the bytes of the tensors that each operator takes and returns.

    Args:
        parameters: tensors of the candidate's model. Operators on these alone are not counted.
        own: the launches of the call.
    """

    supports_higher_order_operators = True

    def __init__(self, parameters: list[Any], own: OwnCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, list[int]] = {}
        """Name of the operator -> bytes taken, returned, kept."""
        self._own = own
        self._prepared = _places(parameters)
        self._of_kernels: set[int] = set()
        """Addresses of memory that was allocated in the call and that no operator of torch wrote."""
        self._made: dict[int, _Made] = {}
        """Address of memory that operators of torch wrote, and that does not count as kept so far."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default would import torch's compiler.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs))
        # Triton's interpreter lets `is_cuda` be true for all tensors.
        is_on_device = any(tensor.device.type == "cuda" for tensor in given)
        if isinstance(func, torch._ops.OpOverload) and func.namespace not in _TORCH_NAMESPACES:
            # An operator of the candidate consists of operators of torch and of launches.
            keys = _BACKENDS["cuda" if is_on_device else "cpu"]
            with self, self._own.operator(func):
                return func.redispatch(keys, *args, **(kwargs or {}))
        places = _places(given)
        taken = _bytes(given)
        returned = func(*args, **(kwargs or {}))
        results = tensors(returned)
        if is_on_device and (held := [tensor for tensor in results if tensor.is_cpu]):
            # On the host, code outside of torch can read the elements in many ways.
            self.add("torch.Tensor.cpu", _bytes(held), 0)
        if places and places <= self._prepared:
            self._prepared |= _places(results)
        elif isinstance(func, torch._ops.OpOverload):
            self._count(func, places, taken, results)
        return returned

    def _count(self, func: torch._ops.OpOverload[..., Any], places: set[int], taken: int, results: list[Any]) -> None:
        name = func._schema.name
        finishes_results_of_kernels = name in _FINISHING and bool(places) and places <= self._of_kernels
        counted_name = name + OF_KERNELS if finishes_results_of_kernels else name
        self.add(counted_name, taken, _bytes(results))
        new_places = _places(results) - places
        self._follow(counted_name, func, places, results)
        if _ALLOCATING.fullmatch(name):
            self._of_kernels |= new_places
        else:
            self._of_kernels -= new_places
            if func._schema.is_mutable:
                self._of_kernels -= places

    def _follow(self, name: str, func: Any, places: set[int], results: list[Any]) -> None:
        """Remember whose result is in the memory of results. A copy of a result is a result of the same operator."""
        if arranges(name):
            known = [self._made[place] for place in places if place in self._made]
            name = next((made.name for made in known if not made.storage.expired()), "")
        for tensor in results:
            place = _place(tensor)
            if not place or (place in places and not func._schema.is_mutable):
                continue
            self._made.pop(place, None)
            if not name:
                continue
            with torch._C.DisableTorchFunction():
                storage = StorageWeakRef(tensor.untyped_storage())
            self._made[place] = _Made(name, tensor.numel() * tensor.element_size(), storage)
        if self._own.depth:
            # What a function of an extension does with memory cannot be observed.
            self.keep()

    def keep(self) -> None:
        """Count memory that still exists as kept: own code, or the caller, may read it from now on."""
        for made in self._made.values():
            if not made.storage.expired():
                self.found[made.name][2] += made.size
        self._made.clear()

    def add(self, name: str, taken: int, returned: int) -> None:
        """Add numbers of bytes to those of a name."""
        counts = self.found.setdefault(name, [0, 0, 0])
        counts[0] += taken
        counts[1] += returned


class _Leaving(TorchFunctionMode):
    """Reports each method in `_LEAVING` that is called, except by Triton's interpreter."""

    def __init__(self, add: Callable[[str, int, int], None]) -> None:
        super().__init__()
        self._add = add

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LEAVING and args and isinstance(args[0], torch.Tensor):
            tensor = args[0]
            leaves_torch = name == "tolist" or tensor.device.type == "cpu"
            if leaves_torch and _INTERPRETER not in sys._getframe(1).f_code.co_filename:
                self._add(f"torch.Tensor.{name}", tensor.numel() * tensor.element_size(), 0)
        return func(*args, **(kwargs or {}))


class Listing:
    """Operators and launches that are executed while it is active.

    Args:
        parameters: tensors of the candidate's model.
    """

    def __init__(self, parameters: list[Any]) -> None:
        self._own = OwnCalls()
        self._operators = _Operators(parameters, self._own)
        self._own.before = self._operators.keep

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """List all that is executed within the context."""
        with _everywhere(self._operators, _Leaving(self._operators.add)), observed(self._own):
            yield

    def finish(self) -> None:
        """Count the memory that exists now as kept."""
        self._operators.keep()

    def add_all(self, other: Listing) -> None:
        """Add what another list has, as executed again."""
        for name, (taken, returned, kept) in other._operators.found.items():
            self._operators.add(name, taken, returned)
            self._operators.found[name][2] += kept
        for name in other._own.names:
            self._own.launch(name)

    def result(self) -> Listed:
        """The operators and launches so far."""
        rows = [[name, *counts] for name, counts in self._operators.found.items()]
        return Listed(rows, sorted(self._own.names))


current: Listing | None = None
"""List of the call that is made now; None where it is not listed."""


def listed(call: Callable[[], Any], parameters: list[Any]) -> tuple[Any, Listed]:
    """Make a call and list its operators and launches; returns its result, too.

    Args:
        parameters: tensors of the candidate's model.
    """
    global current
    listing = current = Listing(parameters)
    try:
        with listing.active():
            result = call()
    finally:
        current = None
    # The result of the call still exists.
    listing.finish()
    return result, listing.result()


@contextlib.contextmanager
def _everywhere(operators: _Operators, leaving: _Leaving) -> Iterator[None]:
    """Enable the modes in this thread, and in threads that start within the context. A mode belongs to a thread."""
    original_run = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with operators, leaving:
            original_run(thread)

    threading.Thread.run = run  # type: ignore[method-assign,assignment]
    try:
        with operators, leaving:
            yield
    finally:
        threading.Thread.run = original_run  # type: ignore[method-assign]


def _bytes(values: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in values)


def _places(values: list[Any]) -> set[int]:
    """Addresses of the tensors' memory."""
    return {_place(tensor) for tensor in values} - {0}


def _place(tensor: Any) -> int:
    """Address of a tensor's memory; 0 if it has none."""
    try:
        with torch._C.DisableTorchFunction():
            return int(tensor.untyped_storage().data_ptr()) if tensor.layout is torch.strided else 0
    except RuntimeError:
        return 0
