"""A list of the operators of a thread that is independent of torch's trace, and parameters that are none.

A candidate can stop the trace for a while, with torch's own means. What this mode saw meanwhile, and the trace did not,
tells. The mode itself sees neither other threads nor what happens below other names: it stands beside the trace, and
not in its place.

A parameter that a kernel has written is no parameter any more, and no operator of torch tells of that. So the values of
parameters are summed up at the beginning, and again when an operator takes nothing but parameters.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch.autograd import _enable_record_function
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["TORCHS", "Listing", "tensors_in"]

TORCHS = frozenset(
    {"aten", "prim", "prims", "inductor", "inductor_prims", "rngprims", "quantized", "_quantized", "quantization"}
    | {"mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "static_runtime", "fbgemm", "sparse", "symm_mem"}
    | {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native", "torchvision", "torchaudio"}
)
"""Namespaces of operators that come with torch. Operators of others are the candidate's own."""
_BACKENDS = {
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.CPU),
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA),
}
_MANY_LOOKS = 64
"""At one parameter; beyond that at a part of its uses."""
_WORD_BYTES = 8
_LEAST_BYTES_PER_S = 200e9
"""That a GPU reads."""


class Listing(TorchDispatchMode):
    """The operators of this thread between a beginning and an end."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._record = _recording()
        next(self._record)
        self.spent_s = 0.0
        """What the list itself has taken."""
        self.seen = 0, 0
        """Operators in the trace beside it, and functions of torch that were called meanwhile."""
        self._parameters: Sequence[torch.Tensor] = ()
        self._begun = False
        # Nobody may know what else would have the same sum.
        self._cut = random.random()
        self._first: dict[int, torch.Tensor] = {}
        self._looks: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        self._uses: dict[int, int] = {}
        self._prepared: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To keep torch's compiler away from this class would be to import it.
        return False

    def of(self, parameters: Sequence[torch.Tensor]) -> None:
        """To be told before it begins: the parameters of the candidate's models."""
        self._parameters = parameters

    def begin(self) -> None:
        """List from now on."""
        self._begun = True
        for parameter in self._parameters:
            place = _place(parameter)
            if place and place not in self._first:
                self._first[place] = self._sum(parameter)
        self._prepared = {*self._first}
        self.__enter__()

    def end(self) -> None:
        """List no more; once is enough."""
        if self._begun:
            self._begun = False
            self.__exit__(None, None, None)

    def overwritten(self) -> list[int]:
        """Numbers of the parameters that held something else than at first when operators took parameters alone."""
        found = {place for place, first, now in self._looks if not torch.equal(first, now)}
        return [number for number, parameter in enumerate(self._parameters) if _place(parameter) in found]

    @property
    def listed(self) -> dict[str, list[int]]:
        """Operators by name: calls, elements of the tensors that they took in all, and of those that they made, and the
        bytes of both."""
        return self._record.send(None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **(kwargs or {}))
        began = perf_counter()
        given = [*tensors_in((args, kwargs))]
        if func.namespace not in TORCHS:
            # Those of others are made of torch's and of launches, which are seen one by one.
            device = "cuda" if any(tensor.is_cuda for tensor in given) else "cpu"
            self.spent_s += perf_counter() - began
            with self:
                result = func.redispatch(_BACKENDS[device], *args, **(kwargs or {}))
            self._others((args, kwargs), result)
            return result
        taken, places = _sizes(given), {*map(_place, given)}
        prepares = bool(self._first) and bool(places) and places <= self._prepared
        if prepares:
            self._look(given)
        self.spent_s += perf_counter() - began
        result = self._made(func, given, args, kwargs or {})
        began = perf_counter()
        made = [*tensors_in(result)]
        if prepares:
            self._prepared |= {*map(_place, made)}
            if func._schema.is_mutable:
                self._known_again(given)
        elements, count = _sizes(made) if taken[0] else (0, 0)
        self._record.send((func._schema.name, 1, taken[0], elements, taken[1], count))
        self.spent_s += perf_counter() - began
        return result

    def _made(self, func: Any, given: list[Any], args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def _others(self, arguments: Any, result: Any) -> None:
        """An operator that did not come with torch was called."""

    def _look(self, given: list[Any]) -> None:
        for place, tensor in {_place(tensor): tensor for tensor in given}.items():
            if place not in self._first or _is_recorded(tensor):
                continue
            self._uses[place] = self._uses.get(place, 0) + 1
            if random.random() * self._uses[place] < _MANY_LOOKS:
                self._looks.append((place, self._first[place], self._sum(tensor)))

    def _known_again(self, given: list[Any]) -> None:
        for place, tensor in {_place(tensor): tensor for tensor in given}.items():
            if place in self._first and _is_recorded(tensor):
                del self._first[place]
            elif place in self._first:
                self._first[place] = self._sum(tensor)

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Two sums over the memory of a tensor, on its device."""
        with _unseen():
            memory = tensor.untyped_storage()
            fits = memory.nbytes() % _WORD_BYTES == 0
            # On a GPU this takes its time later.
            self.spent_s += memory.nbytes() / _LEAST_BYTES_PER_S if tensor.is_cuda else 0.0
            words = torch.empty(0, dtype=torch.int64 if fits else torch.uint8, device=tensor.device).set_(memory)
            cut = int(self._cut * words.numel())
            return torch.stack([words[:cut].sum(), words[cut:].sum()])


def _recording() -> Generator[dict[str, list[int]], tuple[Any, ...] | None, None]:
    """Adds up what it is sent, name and numbers, and gives a copy of the sums: who finds that can take nothing away."""
    listed: dict[str, list[int]] = {}
    while True:
        more = yield {name: [*sums] for name, sums in listed.items()}
        while more is not None:
            name, *numbers = more
            before = listed.get(name, [0] * len(numbers))
            listed[name] = [sum(pair) for pair in zip(before, numbers, strict=True)]
            more = yield {}


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """What is done here is the judge's, and stands in no list."""
    _enable_record_function(False)
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            yield
    finally:
        _enable_record_function(True)


def _place(tensor: Any) -> int:
    """Address of a tensor's memory; 0 where it has none."""
    try:
        with torch._C.DisableTorchFunction():
            return int(tensor.untyped_storage().data_ptr()) if tensor.layout is torch.strided else 0
    except RuntimeError:
        # Tensors that only say what they would hold.
        return 0


def _is_recorded(tensor: Any) -> bool:
    """Whether what is done now becomes part of a graph."""
    return bool(tensor.is_cuda) and torch.cuda.is_current_stream_capturing()


def _sizes(given: Sequence[Any]) -> tuple[int, int]:
    """Elements and bytes of tensors."""
    with torch._C.DisableTorchFunction():
        elements = [int(tensor.numel()) for tensor in given]
        return sum(elements), sum(count * tensor.element_size() for count, tensor in zip(elements, given, strict=True))


def tensors_in(value: Any) -> Iterator[Any]:
    """Tensors in lists, dictionaries and what wraps a tensor."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        # Triton's descriptors and wrappers of tensors.
        yield base
