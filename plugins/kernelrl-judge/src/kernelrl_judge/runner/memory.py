"""What a runner reads from its judge and writes for it: values in shared files or in shared device memory."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kernelrl_judge.protocol.values import DTYPES, TensorLeaf, leaves_of

__all__ = [
    "Inputs",
    "Originals",
    "Outputs",
    "described",
    "fill_fresh_memory",
    "poison_device",
    "refilled",
    "take_at_once",
]

_ALIGNMENT = 256
_POPULATE_READ = 22
"""Of `madvise`, since Linux 5.14."""
_SHARED = "shared"
_M_PERTURB = -6
"""Of `mallopt`: what is allocated is filled with the complement of a byte, unless that is 0."""


class Inputs:
    """The judge's values, read-only here."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._view: mmap.mmap | None = None
        self._announced: mmap.mmap | None = None
        self._announced_before: mmap.mmap | None = None
        self.arena: Any = None

    def text(self, offset: int, count: int) -> str:
        return os.pread(self._descriptor, count, offset).decode("utf-8", "surrogatepass")

    def refresh(self) -> None:
        """Follow the file, which grows from call to call."""
        size = os.fstat(self._descriptor).st_size
        self._view = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ) if size else None

    def announced(self, trees: Any) -> Any:
        """Tensors over the memory that trees describe, whose contents the judge writes later.

        What is written to them in host memory stays here, and costs the page that it is written to a copy. The judge
        reads neither. The memory of those that were announced before stays until others are once more: who still holds
        some may let go of them on the clock, where to unmap them would count.
        """
        size = os.fstat(self._descriptor).st_size
        self._view = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_COPY) if size else None
        self._announced, self._announced_before = self._view, self._announced
        if self._announced is not None:
            with contextlib.suppress(OSError, ValueError):
                # The pages are mapped now and not on the clock.
                self._announced.madvise(_POPULATE_READ)
        return self.values(trees, _SHARED)

    def values(self, tree: Any, device: str) -> Any:
        """Private copies, on `device`, of the values that a tree describes."""
        if isinstance(tree, TensorLeaf):
            return self._tensor(tree, device)
        if isinstance(tree, list | tuple):
            return type(tree)(self.values(item, device) for item in tree)
        if isinstance(tree, dict):
            return {key: self.values(item, device) for key, item in tree.items()}
        return tree

    def _tensor(self, leaf: TensorLeaf, device: str) -> Any:
        import torch

        from kernelrl_judge.protocol.trees import ALIGNMENT, laid_out

        dtype = getattr(torch, leaf.dtype)
        if 0 in leaf.shape:
            return torch.empty(leaf.shape, dtype=dtype, device=leaf.device if device == _SHARED else device)
        if leaf.device == "cuda":
            flat = self.arena.tensor(leaf.offset, (leaf.span,), dtype, apart=device == _SHARED)
        else:
            assert self._view is not None
            with warnings.catch_warnings():
                # The buffer cannot be written to, and nobody does.
                warnings.simplefilter("ignore")
                flat = torch.frombuffer(self._view, dtype=dtype, count=leaf.span, offset=leaf.offset)
        if device == _SHARED:
            return laid_out(leaf, flat)
        if leaf.strides is None:
            # Like a tensor that was just made it is no view.
            flat = flat.view(leaf.shape)
        own = _own(flat, leaf.offset % ALIGNMENT // flat.element_size(), device)
        return own if leaf.strides is None else laid_out(leaf, own)


def _own(values: Any, before: int, device: str) -> Any:
    """A copy of values, behind so many elements of its memory."""
    import torch

    if not before:
        return values.clone() if values.device.type == device else values.to(device)
    flat = values.reshape(-1)
    return torch.empty(before + flat.numel(), dtype=flat.dtype, device=device)[before:].copy_(flat).view(values.shape)


def refilled(old: Any, new: Any) -> Any:
    """New values, whose tensors lie where those in their place lay before; where these are as they were made."""
    import torch

    if type(new) is torch.Tensor:
        if not (type(old) is torch.Tensor and old.shape == new.shape and old.dtype is new.dtype):
            return new
        # Elements that share their memory cannot be written one by one.
        alike = old.stride() == new.stride() and not old.requires_grad and 0 not in new.stride()
        return old.copy_(new) if alike else new
    if isinstance(new, list | tuple):
        places = old if isinstance(old, list | tuple) and len(old) == len(new) else [None] * len(new)
        return type(new)(refilled(*pair) for pair in zip(places, new, strict=True))
    if isinstance(new, dict):
        return {key: refilled(old.get(key) if isinstance(old, dict) else None, value) for key, value in new.items()}
    return new


class Originals:
    """Methods and functions of torch with which values are passed on, as they were before a candidate was loaded."""

    def __init__(self) -> None:
        import torch

        functions = {name: vars(torch)[name] for name in ("frombuffer", "empty", "zeros", "_foreach_copy_")}
        self._methods = dict(vars(torch.Tensor))
        self._kept = [(torch, functions), (torch.Tensor, self._methods)]

    def restore(self) -> None:
        """Put back what was replaced; what was added stays, unless it hides what was there."""
        import torch

        for owner, kept in self._kept:
            now = vars(owner)
            for name in [name for name, value in kept.items() if now.get(name) is not value]:
                setattr(owner, name, kept[name])
        # The class below cannot be changed.
        for name in vars(torch.Tensor).keys() - self._methods.keys():
            if hasattr(torch._C.TensorBase, name):
                delattr(torch.Tensor, name)


def fill_fresh_memory(byte: int | None) -> None:
    """Have the processor's memory that is allocated from now on filled with a byte other than 255, or with nothing.

    A setting of torch's that does so could be read by a candidate, and would tell it whether its calls are timed.
    """
    # Only glibc has it.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0 if byte is None else byte ^ 0xFF)


class Outputs:
    """Where results go. Which bytes they fill is checked and compared by the judge."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.arena: Any = None

    def export(self, value: Any, beside: Sequence[Any] | None = None) -> Any:
        """Write the tensors of a result one after the other; returns the tree that describes it.

        Args:
            beside: what is no result; the tree is then a list with the result and these.

        Raises:
            TypeError: there is something in it that is neither a plain tensor nor a plain value.
        """
        writer = _Writer(self._space())
        tree = writer.tree(value)
        return tree if beside is None else [tree, *map(writer.tree, beside)]

    def places(self, trees: Sequence[Any]) -> list[list[Any]]:
        """Tensors over the places that the judge chose for each of several calls, in the order of each tree."""
        import torch

        space = self._space()
        return [
            [space.tensor(leaf.offset, leaf.shape, getattr(torch, leaf.dtype)) for leaf in leaves_of(tree)]
            for tree in trees
        ]

    def fill(self, places: list[Any], values: list[Any]) -> None:
        """Copy the tensors of results to their places.

        Raises:
            TypeError: a tensor is not what its place expects.
        """
        import torch

        from kernelrl_judge.protocol.trees import tensors

        found = tensors(values)
        if len(found) != len(places):
            raise TypeError("forward returned a different number of tensors than before")
        try:
            if found:
                # A device copies while these are looked at.
                torch._foreach_copy_(places, [held.detach() if held.requires_grad else held for held in found])
        finally:
            self._check(found, places)

    def _check(self, found: Sequence[Any], places: Sequence[Any]) -> None:
        for tensor, place in zip(found, places, strict=True):
            if tensor.shape != place.shape or tensor.dtype is not place.dtype:
                raise TypeError("forward returned a tensor of another shape or dtype than before") from None

    def _space(self) -> Any:
        return self.arena if self.arena is not None else _FileSpace(self._descriptor)


class _FileSpace:
    """The judge's file of outputs."""

    def __init__(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self._view = mmap.mmap(descriptor, self.size) if self.size else None

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
        import torch

        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._view, dtype=dtype, count=count, offset=offset).view(shape)


class _Writer:
    def __init__(self, space: Any) -> None:
        self._space = space
        self._end = 0

    def tree(self, value: Any) -> Any:
        return described(value, self._written)

    def _written(self, plain: Any) -> int:
        """Where a tensor is written; -1 where it does not fit."""
        count = plain.numel() * plain.element_size()
        if self._end + count > self._space.size:
            return -1
        offset = self._end
        self._space.tensor(offset, tuple(plain.shape), plain.dtype).copy_(plain)
        self._end += -(-count // _ALIGNMENT) * _ALIGNMENT
        return offset


def described(value: Any, place: Callable[[Any], int]) -> Any:
    """The tree that describes a result.

    Args:
        place: returns the offset of a tensor.

    Raises:
        TypeError: there is something in it that is neither a plain tensor nor a plain value.
    """
    import torch

    # Exact types only: a subclass could defer its work or lie about its shape.
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        plain = value.detach()
        dtype = str(plain.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TypeError(f"forward returned a tensor of dtype {dtype}")
        if plain.layout is not torch.strided:
            raise TypeError("forward returned a tensor that is not strided")
        return TensorLeaf(dtype, tuple(plain.shape), plain.device.type, place(plain))
    if type(value) in (list, tuple):
        return type(value)(described(item, place) for item in value)
    if type(value) is dict:
        return {key: described(item, place) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(described(item, place) for item in value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"forward returned a value of type {type(value).__name__}, not a tensor")


def take_at_once(tensors: Sequence[TensorLeaf]) -> None:
    """Have the device's memory for tensors like these in one piece and not in hundreds."""
    import torch

    count = sum(math.prod(leaf.shape) * getattr(torch, leaf.dtype).itemsize for leaf in tensors)
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(count, dtype=torch.uint8, device="cuda")


def poison_device(byte: int, sizes: Sequence[int]) -> None:
    """Fill memory of these sizes on the device and free it."""
    import torch

    with contextlib.suppress(torch.OutOfMemoryError):
        # Twice as many: an output may need another of its size on the way.
        kept = [torch.full((max(size, 1),), byte, dtype=torch.uint8, device="cuda") for size in (*sizes, *sizes)]
        del kept
