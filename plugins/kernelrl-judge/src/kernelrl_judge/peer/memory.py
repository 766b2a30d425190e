"""Memory that judge and runner share, seen from the judge.

Both kinds have the same methods: `share` writes values for the runner and returns the tree that describes them,
`make_room` provides memory for outputs, `collect` reads the outputs that a description refers to. `FileExchange` uses
anonymous files in host memory; `ArenaExchange` uses device memory for tensors
(`kernelrl_judge.protocol.device_memory`).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from kernelrl_judge.device.facts import kept_bytes
from kernelrl_judge.protocol.device_memory import Arena
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.trees import Laid, distinct, laid_out, lay_out
from kernelrl_judge.protocol.values import ObjectLeaf, TensorLeaf, leaves_of

__all__ = ["ArenaExchange", "Arenas", "Exchange", "FileExchange"]

_MIN_ARENA_BYTES = 64 << 20
"""Replacing an arena takes longer than making a larger one."""
_MAX_OFFSET = 1 << 48
"""System calls take no larger offset."""


class Exchange(ABC):
    """Shared memory of one runner."""

    device: ClassVar[str] = "cpu"

    @abstractmethod
    def _fit(self, *, inputs: int | None = None, outputs: int | None = None) -> None:
        """Provide so many bytes for inputs and outputs; None: as many as before."""

    @abstractmethod
    def _write(self, laid: Laid) -> None:
        """Write tensors to their places."""

    @abstractmethod
    def _read(self, leaf: TensorLeaf, like: torch.Tensor) -> torch.Tensor:
        """A copy of an output with the shape and dtype of `like`.

        Raises:
            ProtocolError: the leaf points outside of the shared memory.
        """

    def share(self, values: Any) -> Any:
        """Write values; returns the tree that describes them."""
        laid = lay_out(values, self.device)
        self._fit(inputs=laid.end)
        self._write(laid)
        return laid.tree

    def announce(self, values: Any, output_bytes: int) -> Any:
        """The tree that `share` returns for values like these, without writing them.

        Args:
            output_bytes: memory for outputs.
        """
        laid = lay_out(values, self.device)
        self._fit(inputs=laid.end, outputs=output_bytes)
        return laid.tree

    def make_room(self, count: int) -> None:
        """Provide so many bytes for outputs."""
        self._fit(outputs=count)

    def collect(self, expected: Any, described: Any) -> Any:
        """Tensors in the place of the leaves of a description that equals the expected one: a copy made now.

        Raises:
            ProtocolError: a leaf points outside of the shared memory.
        """
        return _collect(expected, described, self._read)


class FileExchange(Exchange):
    """Two anonymous files: `inputs`, which the runner can only read, and `outputs`."""

    def __init__(self) -> None:
        self.inputs = os.memfd_create("inputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # A runner could open the file again for writing; if it made the file shorter while the judge writes, the judge
        # would end with SIGBUS.
        fcntl.fcntl(self.inputs, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.outputs = os.memfd_create("outputs")

    def share_text(self, text: bytes) -> None:
        """Write `text` at offset 0."""
        self._fit(inputs=len(text))
        os.pwrite(self.inputs, text, 0)

    def close(self) -> None:
        """Close both files."""
        os.close(self.inputs)
        os.close(self.outputs)

    def _fit(self, *, inputs: int | None = None, outputs: int | None = None) -> None:
        if inputs is not None and os.fstat(self.inputs).st_size < max(inputs, 1):
            os.ftruncate(self.inputs, max(inputs, 1))
        if outputs is not None:
            os.ftruncate(self.outputs, outputs)

    def _write(self, laid: Laid) -> None:
        if laid.end:
            with mmap.mmap(self.inputs, laid.end) as view:
                for leaf, tensor in laid.chunks:
                    if tensor.numel():
                        flat = torch.frombuffer(view, dtype=tensor.dtype, count=leaf.span, offset=leaf.offset)
                        distinct(laid_out(leaf, flat)).copy_(distinct(tensor))
                        del flat

    def _read(self, leaf: TensorLeaf, like: torch.Tensor) -> torch.Tensor:
        if leaf.offset > _MAX_OFFSET:
            raise ProtocolError("an output is outside of the shared file")
        count = like.numel() * like.element_size()
        data = bytearray(count)
        view = memoryview(data)
        n_read = 0
        while n_read < count:
            read = os.preadv(self.outputs, [view[n_read:]], leaf.offset + n_read)
            if not read:
                raise ProtocolError("an output is outside of the shared file")
            n_read += read
        return torch.frombuffer(data, dtype=torch.uint8).view(like.dtype).view(like.shape)


class Arenas:
    """Device memory of a judge, kept from one candidate to the next and replaced when it is too small."""

    def __init__(self, device: int = 0) -> None:
        self._device = device
        self.inputs = Arena.create(1, device)
        self.outputs = Arena.create(1, device)

    def fit(self, inputs: int, outputs: int) -> bool:
        """Make both large enough; returns whether one was replaced, so that runners must attach again."""
        is_replaced = False
        for name, wanted in (("inputs", inputs), ("outputs", outputs)):
            arena: Arena = getattr(self, name)
            # The size of an arena that is closed, because it could not be replaced before, is 0.
            wanted = max(wanted, _MIN_ARENA_BYTES)
            if arena.size < wanted:
                arena.close()
                setattr(self, name, Arena.create(wanted, self._device))
                is_replaced = True
        return is_replaced

    def shrink(self) -> None:
        """Free the memory beyond `kept_bytes`, which others on the device need."""
        for name in ("inputs", "outputs"):
            arena: Arena = getattr(self, name)
            if arena.size > kept_bytes():
                arena.close()
                setattr(self, name, Arena.create(_MIN_ARENA_BYTES, self._device))

    def clear(self) -> None:
        """Set all bytes to zero, so that a candidate cannot read outputs of another one."""
        for arena in (self.inputs, self.outputs):
            arena.tensor(0, (arena.size,), torch.uint8).zero_()

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.inputs.size + self.outputs.size

    def close(self) -> None:
        """Free the memory; errors of a device that has failed are ignored."""
        for arena in (self.inputs, self.outputs):
            with contextlib.suppress(Exception):
                arena.close()


class ArenaExchange(Exchange):
    """Device memory for tensors.

    Args:
        arenas: of the judge.
        attach: has the runner map the arenas as they are now.
    """

    device: ClassVar[str] = "cuda"

    def __init__(self, arenas: Arenas, attach: Callable[[Arenas], None]) -> None:
        self._arenas = arenas
        self._attach = attach
        self._attached = False
        self._input_bytes, self._output_bytes = 0, 0

    def inputs_of(self, tree: Any) -> list[torch.Tensor]:
        """The shared tensors that a tree of `share` describes, in its order. Valid until larger values are shared."""
        return [distinct(self._input(leaf)) for leaf in leaves_of(tree) if 0 not in leaf.shape]

    def outputs_of(self, leaves: Sequence[TensorLeaf]) -> torch.Tensor:
        """One view of equal outputs at equal distances, with the number of the output as first dimension."""
        first = leaves[0]
        dtype = getattr(torch, first.dtype)
        distance = leaves[1].offset - first.offset if len(leaves) > 1 else 0
        width = dtype.itemsize
        count = (leaves[-1].offset - first.offset) // width + first.span
        flat = self._arenas.outputs.tensor(first.offset, (count,), dtype)
        strides = [*torch.empty(first.shape, device="meta").stride()]
        return flat.as_strided((len(leaves), *first.shape), (distance // width, *strides))

    def laid_out(self, values: Any) -> Any:
        """The tree that `share` returns for these values, without writing them."""
        return lay_out(values, "cuda").tree

    def read_inputs(self, like: Any, tree: Any) -> Any:
        """Copies of shared values, as they are now.

        Args:
            like: values of the same structure.
            tree: returned by `share` for them.
        """
        return _collect(like, tree, lambda leaf, _: self._input(leaf).clone())

    def _input(self, leaf: TensorLeaf) -> torch.Tensor:
        return laid_out(leaf, self._arenas.inputs.tensor(leaf.offset, (leaf.span,), getattr(torch, leaf.dtype)))

    def _fit(self, *, inputs: int | None = None, outputs: int | None = None) -> None:
        self._input_bytes = self._input_bytes if inputs is None else inputs
        self._output_bytes = self._output_bytes if outputs is None else outputs
        # Both at once: a runner attaches both again where one is replaced.
        if self._arenas.fit(self._input_bytes, self._output_bytes) or not self._attached:
            self._attach(self._arenas)
            self._attached = True

    def _write(self, laid: Laid) -> None:
        given = [distinct(tensor) for _, tensor in laid.chunks if tensor.numel()]
        if given:
            torch._foreach_copy_(self.inputs_of(laid.tree), given)
        torch.cuda.synchronize()

    def _read(self, leaf: TensorLeaf, like: torch.Tensor) -> torch.Tensor:
        try:
            return self._arenas.outputs.tensor(leaf.offset, tuple(like.shape), like.dtype).clone()
        except ValueError as error:
            raise ProtocolError(str(error)) from None


def _collect(expected: Any, described: Any, read: Callable[[TensorLeaf, torch.Tensor], torch.Tensor]) -> Any:
    """The expected structure with tensors that `read` returns, and with the described values beside them."""
    if isinstance(expected, torch.Tensor):
        if not expected.numel():
            return expected.clone()
        if described.offset < 0:
            raise ProtocolError("an output of the expected size was not delivered")
        return read(described, expected)
    if isinstance(expected, list | tuple):
        # The last part of a named tuple are its items.
        items = described.parts[-1] if isinstance(described, ObjectLeaf) else described
        return [_collect(*pair, read) for pair in zip(expected, items, strict=True)]
    if isinstance(expected, dict):
        return {key: _collect(value, described[key], read) for key, value in expected.items()}
    return described
