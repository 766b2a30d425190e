"""Values that judge and runner share, in files or in device memory: the runner reads inputs and writes outputs."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelrl_judge.protocol.plain_values import TUPLE_TYPES, is_exact, plain, rebuilt, sequence_as, tensor_problem
from kernelrl_judge.protocol.trees import ALIGNMENT, aligned, laid_out
from kernelrl_judge.protocol.values import ObjectLeaf, TensorLeaf, leaves_of

if TYPE_CHECKING:
    from kernelrl_judge.protocol.device_memory import Arena

__all__ = ["SharedInputs", "SharedOutputs", "described", "refilled"]

_POPULATE_READ = 22
"""`MADV_POPULATE_READ` of `madvise`, since Linux 5.14."""
_SHARED = "shared"
"""In place of a device: tensors over the shared memory itself."""


class SharedInputs:
    """The values that the judge writes. The runner only reads them.

    Args:
        descriptor: of the judge's file of inputs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._view: mmap.mmap | None = None
        self._announced: mmap.mmap | None = None
        self._announced_before: mmap.mmap | None = None
        self.arena: Arena | None = None
        """Device memory that replaces the file for tensors on a GPU."""

    def text(self, offset: int, count: int) -> str:
        """The text in `count` bytes of the file."""
        return os.pread(self._descriptor, count, offset).decode("utf-8", "surrogatepass")

    def refresh(self) -> None:
        """Map the file again: it grows from call to call."""
        size = os.fstat(self._descriptor).st_size
        self._view = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ) if size else None

    def announced(self, trees: Any) -> Any:
        """Tensors over the shared memory that trees describe. The judge writes their contents later.

        A candidate may write to them. In host memory its writes stay in this process, and each page that it writes to
        is copied first. The judge reads neither its writes nor the copies.

        The mapping of the previous announcement is kept until the next one. A candidate may release tensors of it
        within a window, and the time to remove the mapping would count as time of its calls.
        """
        size = os.fstat(self._descriptor).st_size
        self._view = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_COPY) if size else None
        self._announced_before = self._announced
        self._announced = self._view
        if self._announced is not None:
            with contextlib.suppress(OSError, ValueError):
                # The pages are mapped now, and not within a window.
                self._announced.madvise(_POPULATE_READ)
        return self.values(trees, _SHARED)

    def values(self, tree: Any, device: str) -> Any:
        """Private copies, on a device, of the values that a tree describes."""
        if isinstance(tree, TensorLeaf):
            return self._tensor(tree, device)
        if isinstance(tree, list | tuple):
            return type(tree)(self.values(item, device) for item in tree)
        if isinstance(tree, dict):
            return {key: self.values(item, device) for key, item in tree.items()}
        if isinstance(tree, ObjectLeaf):
            return rebuilt(tree.kind, self.values(tree.parts, device))
        return tree

    def _tensor(self, leaf: TensorLeaf, device: str) -> torch.Tensor:
        dtype = getattr(torch, leaf.dtype)
        if 0 in leaf.shape:
            return torch.empty(leaf.shape, dtype=dtype, device=leaf.device if device == _SHARED else device)
        flat = self._shared_elements(leaf, dtype, apart=device == _SHARED)
        if device == _SHARED:
            return laid_out(leaf, flat)
        if leaf.strides is None:
            # The copy of a tensor of this shape is no view, like a new tensor.
            flat = flat.view(leaf.shape)
        elements_before = leaf.offset % ALIGNMENT // flat.element_size()
        own = _copied(flat, elements_before, device)
        return own if leaf.strides is None else laid_out(leaf, own)

    def _shared_elements(self, leaf: TensorLeaf, dtype: torch.dtype, *, apart: bool) -> torch.Tensor:
        """The elements of a leaf in the shared memory, as a tensor of one dimension."""
        if leaf.device == "cuda":
            assert self.arena is not None
            return self.arena.tensor(leaf.offset, (leaf.span,), dtype, apart=apart)
        assert self._view is not None
        with warnings.catch_warnings():
            # torch warns that the buffer is read-only. Nothing writes to this tensor.
            warnings.simplefilter("ignore")
            return torch.frombuffer(self._view, dtype=dtype, count=leaf.span, offset=leaf.offset)


def _copied(values: torch.Tensor, elements_before: int, device: str) -> torch.Tensor:
    """A copy of values on a device.

    Args:
        elements_before: number of unused elements before the values in the memory of the copy.
    """
    if not elements_before:
        return values.clone() if values.device.type == device else values.to(device)
    flat = values.reshape(-1)
    memory = torch.empty(elements_before + flat.numel(), dtype=flat.dtype, device=device)
    return memory[elements_before:].copy_(flat).view(values.shape)


def refilled(old: Any, new: Any) -> Any:
    """New values, written into the old tensors at the same positions where these have the same shape and dtype."""
    if type(new) is torch.Tensor:
        if not (type(old) is torch.Tensor and old.shape == new.shape and old.dtype is new.dtype):
            return new
        # A tensor of stride 0 has several elements in one place, which cannot be written one by one.
        can_be_written = old.stride() == new.stride() and not old.requires_grad and 0 not in new.stride()
        return old.copy_(new) if can_be_written else new
    if isinstance(new, list | tuple):
        old_items = old if isinstance(old, list | tuple) and len(old) == len(new) else [None] * len(new)
        return sequence_as(new, [refilled(*pair) for pair in zip(old_items, new, strict=True)])
    if isinstance(new, dict):
        old_values = old if isinstance(old, dict) else {}
        return {key: refilled(old_values.get(key), value) for key, value in new.items()}
    return new


class SharedOutputs:
    """The places of outputs, which the runner writes. The judge checks and compares their bytes.

    Args:
        descriptor: of the judge's file of outputs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.arena: Arena | None = None
        """Device memory that replaces the file for tensors on a GPU."""

    def export(self, output: Any, others: Sequence[Any] | None = None) -> Any:
        """Write the tensors of an output one after the other; returns the tree that describes it.

        Args:
            others: further values; the result is then a list of the trees of the output and of each of them.

        Raises:
            TypeError: a value contains an object that is neither a plain tensor nor a plain value.
        """
        writer = _Writer(self._space())
        tree = writer.tree(output)
        if others is None:
            return tree
        return [tree, *(writer.tree(value) for value in others)]

    def places(self, trees: Sequence[Any]) -> list[list[torch.Tensor]]:
        """For each call the tensors over the places that the judge chose, in the order of the call's tree."""
        space = self._space()
        return [
            [space.tensor(leaf.offset, leaf.shape, getattr(torch, leaf.dtype)) for leaf in leaves_of(tree)]
            for tree in trees
        ]

    def _space(self) -> Arena | _FileSpace:
        return self.arena if self.arena is not None else _FileSpace(self._descriptor)


class _FileSpace:
    """The judge's file of outputs, mapped; with the methods of `Arena` that are used here."""

    def __init__(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self._view = mmap.mmap(descriptor, self.size) if self.size else None

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor over a part of the file."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._view, dtype=dtype, count=count, offset=offset).view(shape)


class _Writer:
    """Writes tensors one after the other."""

    def __init__(self, space: Arena | _FileSpace) -> None:
        self._space = space
        self._end = 0

    def tree(self, value: Any) -> Any:
        """Write the tensors of a value; returns its tree."""
        return described(value, self._written)

    def _written(self, tensor: torch.Tensor) -> int:
        """Write a tensor; returns its offset, or -1 if it does not fit."""
        count = tensor.numel() * tensor.element_size()
        if self._end + count > self._space.size:
            return -1
        offset = self._end
        self._space.tensor(offset, tuple(tensor.shape), tensor.dtype).copy_(tensor)
        self._end += aligned(count)
        return offset


def described(value: Any, place: Callable[[torch.Tensor], int]) -> Any:
    """The tree that describes an output. Named tuples become tuples.

    Args:
        place: called for each tensor; returns its offset.

    Raises:
        TypeError: the output contains an object that is neither a plain tensor nor a plain value.
    """
    # Exact types: a subclass could defer its work or report a false shape.
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _described_tensor(value, place)
    if type(value) in (list, tuple):
        return type(value)(described(item, place) for item in value)
    if type(value) in (dict, OrderedDict):
        return {key: described(item, place) for key, item in value.items()}
    if type(value) in TUPLE_TYPES or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return tuple(described(item, place) for item in value)
    if is_exact(value):
        return plain(value, flat=True)
    raise TypeError(f"forward returned a value of type {type(value).__name__}, not a tensor")


def _described_tensor(value: torch.Tensor, place: Callable[[torch.Tensor], int]) -> TensorLeaf:
    tensor = value.detach()
    problem = tensor_problem(tensor)
    if problem:
        raise TypeError(f"forward returned {problem}")
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorLeaf(dtype, tuple(tensor.shape), tensor.device.type, place(tensor))
