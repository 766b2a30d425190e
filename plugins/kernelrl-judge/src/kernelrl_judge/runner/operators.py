"""The operators of torch that a call goes through.

Runs inside the runner, so that its list is evidence only; `kernelrl_judge.peer.computing` weighs it in the judge.
Operators on parameters alone prepare them, and are omitted. Threads that began before are not seen. What an extension
imports is (`kernelrl_judge.build.imports`).
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

_TORCHS = frozenset({"aten", "prim", "prims", "inductor", "quantized", "mkl", "mkldnn", "onednn", "fbgemm", "sparse"})
"""Namespaces of operators that come with torch."""
_ALLOCATING = re.compile(r"aten::(new_)?(empty|zeros|full)\w*|aten::(zero|fill)_")
_ADDING = frozenset({"aten::sum", "aten::mean"})
_OF_KERNELS = " of what kernels wrote"
"""End of the name of a sum of memory that was allocated in the call and that no other operator wrote."""
_BACKENDS = {
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.CPU),
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA),
}
_LEAVING = frozenset(
    {"numpy", "__array__", "__dlpack__", "tolist", "__reduce_ex__", "storage", "untyped_storage", "_typed_storage"}
    | {"apply_", "map_", "map2_"}
)
"""Methods that hand the elements of a tensor to something else than torch; on a GPU `tolist` alone does."""
_INTERPRETER = f"{os.sep}triton{os.sep}runtime{os.sep}"


class _Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__()
        self.found: dict[str, list[int]] = {}
        self._prepared = {_place(tensor) for tensor in parameters} - {0}
        self._of_kernels: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To keep torch's compiler away from this class would be to import it.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs))
        if isinstance(func, torch._ops.OpOverload) and func.namespace not in _TORCHS:
            # Operators of the candidate are made of torch's and of launches.
            keys = _BACKENDS["cuda" if any(tensor.is_cuda for tensor in given) else "cpu"]
            with self:
                return func.redispatch(keys, *args, **(kwargs or {}))
        places = {*map(_place, given)} - {0}
        taken = sum(tensor.numel() for tensor in given)
        made = func(*args, **(kwargs or {}))
        results = tensors(made)
        if places and places <= self._prepared:
            self._prepared |= {_place(tensor) for tensor in results}
        elif isinstance(func, torch._ops.OpOverload):
            name = func._schema.name
            partial = name in _ADDING and places and places <= self._of_kernels
            self.add(name + _OF_KERNELS * bool(partial), taken, sum(tensor.numel() for tensor in results))
            new = {*map(_place, results)} - places
            if _ALLOCATING.fullmatch(name):
                self._of_kernels |= new - {0}
            else:
                self._of_kernels -= new | (places if func._schema.is_mutable else set())
        return made

    def add(self, name: str, taken: int, made: int) -> None:
        before = self.found.get(name, (0, 0))
        self.found[name] = [before[0] + taken, before[1] + made]


class _Leaving(TorchFunctionMode):
    def __init__(self, add: Callable[[str, int, int], None]) -> None:
        super().__init__()
        self._add = add

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if (
            name in _LEAVING
            and args
            and isinstance(args[0], torch.Tensor)
            and (name == "tolist" or args[0].device.type == "cpu")
            and _INTERPRETER not in sys._getframe(1).f_code.co_filename
        ):
            self._add(f"torch.Tensor.{name}", args[0].numel(), 0)
        return func(*args, **(kwargs or {}))


def listed(call: Callable[[], Any], parameters: list[Any]) -> tuple[Any, list[list[Any]]]:
    """Make a call.

    Args:
        parameters: of the candidate's model.

    Returns:
        Its result; and for each operator of torch, and for each method that hands elements to something else, the
        name, the elements of all tensors that it took, and of those that it made.
    """
    operators = _Operators(parameters)
    with _everywhere(operators, _Leaving(operators.add)):
        result = call()
    return result, [[name, *counts] for name, counts in operators.found.items()]


@contextlib.contextmanager
def _everywhere(*modes: Any) -> Iterator[None]:
    """Modes belong to a thread; here those that begin meanwhile have them, too."""
    begin = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with modes[0], modes[1]:
            begin(thread)

    threading.Thread.run = run  # type: ignore[method-assign]
    try:
        with modes[0], modes[1]:
            yield
    finally:
        threading.Thread.run = begin  # type: ignore[method-assign]


def _place(tensor: Any) -> int:
    """Address of a tensor's memory; 0 where it has none."""
    try:
        with torch._C.DisableTorchFunction():
            return int(tensor.untyped_storage().data_ptr()) if tensor.layout is torch.strided else 0
    except RuntimeError:
        return 0
