"""The memory through which values pass between judge and runner, seen from the judge.

Both forms offer the same: `share` writes values for the runner and returns the tree that describes them, `make_room`
provides for outputs, `collect` reads the outputs that a description points at. `FileExchange` uses anonymous files in
host memory; `ArenaExchange` uses device memory for tensors (`kernelrl_judge.protocol.device_memory`).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelrl_judge.peer import device_facts
from kernelrl_judge.protocol.device_memory import Arena
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.trees import Laid, distinct, laid_out, lay_out
from kernelrl_judge.protocol.values import TensorLeaf, leaves_of

__all__ = ["ArenaExchange", "Arenas", "Exchange", "FileExchange"]

_LEAST_BYTES = 64 << 20
"""Of an arena: to replace one takes longer than it takes to make a larger one."""
_MOST_OFFSET = 1 << 48
"""Beyond it no call of the system takes an offset."""


class Exchange:
    """Either form."""

    device = "cpu"
    _fit: Callable[..., None]
    """Have so many bytes for `inputs` and `outputs`; those that are not named stay as they are."""
    _write: Callable[[Laid], None]
    _read: Callable[[TensorLeaf, torch.Tensor], torch.Tensor]

    def share(self, values: Any) -> Any:
        laid = lay_out(values, self.device)
        self._fit(inputs=laid.end)
        self._write(laid)
        return laid.tree

    def announce(self, values: Any, room: int) -> Any:
        """What `share` returns for values like these, which are not there yet; with bytes for outputs."""
        laid = lay_out(values, self.device)
        self._fit(inputs=laid.end, outputs=room)
        return laid.tree

    def make_room(self, count: int) -> None:
        """Have so many bytes for outputs."""
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
        # A runner could open it anew to write: a file that is made shorter while the judge writes would end the judge.
        fcntl.fcntl(self.inputs, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.outputs = os.memfd_create("outputs")

    def share_text(self, text: bytes) -> None:
        """Write `text` at offset 0."""
        self._fit(inputs=len(text))
        os.pwrite(self.inputs, text, 0)

    def close(self) -> None:
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
        if leaf.offset > _MOST_OFFSET:
            raise ProtocolError("an output lies outside the shared file")
        count = like.numel() * like.element_size()
        data = bytearray(count)
        view, place = memoryview(data), 0
        while place < count:
            got = os.preadv(self.outputs, [view[place:]], leaf.offset + place)
            if not got:
                raise ProtocolError("an output lies outside the shared file")
            place += got
        return torch.frombuffer(data, dtype=torch.uint8).view(like.dtype).view(like.shape)


class Arenas:
    """The device memory of a judge, kept from one candidate to the next and replaced when it is too small."""

    def __init__(self, device: int = 0) -> None:
        self._device = device
        self.inputs = Arena.create(1, device)
        self.outputs = Arena.create(1, device)

    def fit(self, inputs: int, outputs: int) -> bool:
        """Make both large enough; returns whether one was replaced, so that runners must attach anew."""
        changed = False
        for name, wanted in (("inputs", inputs), ("outputs", outputs)):
            arena: Arena = getattr(self, name)
            # One that is closed could not be replaced before.
            wanted = max(wanted, _LEAST_BYTES)
            if arena.size < wanted:
                arena.close()
                setattr(self, name, Arena.create(wanted, self._device))
                changed = True
        return changed

    def shrink(self) -> None:
        """Give back, between candidates, what is more than may be kept: others use the device, too."""
        for name in ("inputs", "outputs"):
            arena: Arena = getattr(self, name)
            if arena.size > device_facts.kept_bytes():
                arena.close()
                setattr(self, name, Arena.create(_LEAST_BYTES, self._device))

    def clear(self) -> None:
        """Set all bytes to zero: the next candidate must not find outputs of the one before."""
        for arena in (self.inputs, self.outputs):
            arena.tensor(0, (arena.size,), torch.uint8).zero_()

    def close(self) -> None:
        for arena in (self.inputs, self.outputs):
            with contextlib.suppress(Exception):
                arena.close()


class ArenaExchange(Exchange):
    """Device memory for tensors.

    Args:
        arenas: of the judge.
        attach: tells the runner to map the arenas as they are now.
    """

    device = "cuda"

    def __init__(self, arenas: Arenas, attach: Callable[[Arenas], None]) -> None:
        self._arenas = arenas
        self._attach = attach
        self._attached = False
        self._filled, self._room = 0, 0

    def inputs_of(self, tree: Any) -> list[torch.Tensor]:
        """The shared tensors that a tree of `share` describes, in its order. They end with the next, larger values."""
        return [distinct(self._input(leaf)) for leaf in leaves_of(tree) if 0 not in leaf.shape]

    def outputs_of(self, leaves: Sequence[TensorLeaf]) -> torch.Tensor:
        """One view of equal outputs that lie at equal distances, with the number of the output as first dimension."""
        first = leaves[0]
        dtype = getattr(torch, first.dtype)
        distance = leaves[1].offset - first.offset if len(leaves) > 1 else 0
        width = dtype.itemsize
        count = (leaves[-1].offset - first.offset) // width + first.span
        flat = self._arenas.outputs.tensor(first.offset, (count,), dtype)
        strides = [*torch.empty(first.shape, device="meta").stride()]
        return flat.as_strided((len(leaves), *first.shape), (distance // width, *strides))

    def laid_out(self, values: Any) -> Any:
        """What `share` returns for these values; nothing is written."""
        return lay_out(values, "cuda").tree

    def read_inputs(self, like: Any, tree: Any) -> Any:
        """Copies of shared values, as they are now.

        Args:
            like: values of the same structure.
            tree: what `share` returned for them.
        """
        return _collect(like, tree, lambda leaf, _: self._input(leaf).clone())

    def _input(self, leaf: TensorLeaf) -> torch.Tensor:
        return laid_out(leaf, self._arenas.inputs.tensor(leaf.offset, (leaf.span,), getattr(torch, leaf.dtype)))

    def _fit(self, *, inputs: int | None = None, outputs: int | None = None) -> None:
        self._filled = self._filled if inputs is None else inputs
        self._room = self._room if outputs is None else outputs
        # Both at once: a runner attaches both anew where one is replaced.
        if self._arenas.fit(self._filled, self._room) or not self._attached:
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
    if isinstance(expected, torch.Tensor):
        if not expected.numel():
            return expected.clone()
        if described.offset < 0:
            raise ProtocolError("an output of the expected size was not delivered")
        return read(described, expected)
    if isinstance(expected, list | tuple):
        return [_collect(*pair, read) for pair in zip(expected, described, strict=True)]
    if isinstance(expected, dict):
        return {str(key): _collect(value, described[str(key)], read) for key, value in expected.items()}
    return described
