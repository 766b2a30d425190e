"""The operators of torch that a call executes.

The list is made inside the runner and is evidence only; the judge decides with `kernelrl_judge.probes.computing`.
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

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelrl_judge.protocol.trees import tensors

__all__ = ["listed"]

_TORCH_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "inductor", "quantized", "mkl", "mkldnn", "onednn", "fbgemm", "sparse"}
)
"""Namespaces of operators that come with torch."""
_ALLOCATING = re.compile(r"aten::(new_)?(empty|zeros|full)\w*|aten::(zero|fill)_")
_ADDING = frozenset({"aten::sum", "aten::mean"})
_OF_KERNELS = " of what kernels wrote"
"""Suffix of the name of a sum of memory that the call allocated and that no operator of torch wrote."""
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


class _Operators(TorchDispatchMode):
    """Counts the elements of the tensors that each operator takes and returns.

    Args:
        parameters: tensors of the candidate's model. Operators on these alone are not counted.
    """

    supports_higher_order_operators = True

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, list[int]] = {}
        """Name of the operator -> elements taken, elements returned."""
        self._prepared = _places(parameters)
        self._of_kernels: set[int] = set()
        """Addresses of memory that was allocated in the call and that no operator of torch wrote."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default would import torch's compiler.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs))
        if isinstance(func, torch._ops.OpOverload) and func.namespace not in _TORCH_NAMESPACES:
            # An operator of the candidate consists of operators of torch and of launches.
            keys = _BACKENDS["cuda" if any(tensor.is_cuda for tensor in given) else "cpu"]
            with self:
                return func.redispatch(keys, *args, **(kwargs or {}))
        places = _places(given)
        taken = _elements(given)
        returned = func(*args, **(kwargs or {}))
        results = tensors(returned)
        if places and places <= self._prepared:
            self._prepared |= _places(results)
        elif isinstance(func, torch._ops.OpOverload):
            self._count(func, places, taken, results)
        return returned

    def _count(self, func: torch._ops.OpOverload[..., Any], places: set[int], taken: int, results: list[Any]) -> None:
        name = func._schema.name
        adds_results_of_kernels = name in _ADDING and bool(places) and places <= self._of_kernels
        self.add(name + _OF_KERNELS if adds_results_of_kernels else name, taken, _elements(results))
        new_places = _places(results) - places
        if _ALLOCATING.fullmatch(name):
            self._of_kernels |= new_places
        else:
            self._of_kernels -= new_places
            if func._schema.is_mutable:
                self._of_kernels -= places

    def add(self, name: str, taken: int, returned: int) -> None:
        """Add numbers of elements to those of a name."""
        taken_before, returned_before = self.found.get(name, (0, 0))
        self.found[name] = [taken_before + taken, returned_before + returned]


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
                self._add(f"torch.Tensor.{name}", tensor.numel(), 0)
        return func(*args, **(kwargs or {}))


def listed(call: Callable[[], Any], parameters: list[Any]) -> tuple[Any, list[list[Any]]]:
    """Make a call and list its operators.

    Args:
        parameters: tensors of the candidate's model.

    Returns:
        The result of the call. For each operator of torch, and for each method that passes elements to code outside of
        torch: its name, the number of elements of all tensors that it took, and of those that it returned.
    """
    operators = _Operators(parameters)
    with _everywhere(operators, _Leaving(operators.add)):
        result = call()
    return result, [[name, *counts] for name, counts in operators.found.items()]


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


def _elements(values: list[Any]) -> int:
    return sum(tensor.numel() for tensor in values)


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
