"""The orders of a judge whose bodies are value trees, one class for each kind of frame; `Call` is in `call`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs

from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, encode_tree

__all__ = [
    "AttachOrder",
    "ConstructOrder",
    "KernelBenchOrder",
    "LoadOrder",
    "Order",
    "RecordOrder",
    "StageOrder",
    "WindowOrder",
]


@attrs.frozen
class Order:
    """The content of a frame, encoded as a tree of its fields by name."""

    def encoded(self) -> bytes:
        """Bytes for `decoded`.

        Raises:
            TypeError: a field holds a value that cannot be encoded.
        """
        return encode_tree(attrs.asdict(self, recurse=False))

    @classmethod
    def decoded(cls, body: bytes) -> Self:
        """The order that was encoded.

        Raises:
            ProtocolError: the bytes are no order of this class.
        """
        try:
            return cls(**decode_tree(body))
        except TypeError as error:
            raise ProtocolError(f"malformed {cls.__name__}: {error}") from None


@attrs.frozen
class LoadOrder(Order):
    """The content of a frame of kind `LOAD`."""

    source_offset: int
    """Of the candidate's source in the file of inputs, in bytes."""
    source_bytes: int
    package_bytes: int
    """Of the files that it may import, behind the source: path -> text as JSON; 0: there are none."""
    options: str
    """The backend's options as JSON."""
    disabled: bool
    """The candidate's kernels only copy."""
    builds: bool
    """The build service replaces `load_inline`."""


@attrs.frozen
class AttachOrder(Order):
    """The content of a frame of kind `ATTACH`: the sizes in bytes of two arenas, whose descriptors come along."""

    inputs: int
    outputs: int


@attrs.frozen
class ConstructOrder(Order):
    """The content of a frame of kind `CONSTRUCT`."""

    arguments: Sequence[Any]
    """Trees of the constructor's positional arguments."""
    keywords: Mapping[str, Any]
    """Trees of its keyword arguments."""
    state: Mapping[str, Any]
    """Trees of the parameters and buffers of the reference, by name."""
    dtype: str
    """Name of the type to which floating-point parameters are cast, such as `float32`; empty: they stay."""
    init_seed: int
    """Seed of the random numbers of the constructor."""


@attrs.frozen
class StageOrder(Order):
    """The content of a frame of kind `STAGE`."""

    inputs: Sequence[Any]
    """Tree of the arguments of each call."""
    outputs: Sequence[Any]
    """Tree of the places of the outputs of each call."""
    announced: bool
    """The judge writes the inputs later, immediately before the window."""
    ready: Sequence[int]
    """Sizes in bytes of the host memory that one call may allocate."""


@attrs.frozen
class WindowOrder(Order):
    """The content of a frame of kind `WINDOW`."""

    count: int
    """Number of calls; at most as many as are staged."""


@attrs.frozen
class KernelBenchOrder(Order):
    """The content of a frame of kind `TIME`."""

    arguments: Any
    """Tree of the arguments of every call."""
    method: str
    """Timing method, as in `EvaluationSettings.timing_method`."""
    trials: int


@attrs.frozen
class RecordOrder(Order):
    """The content of a frame of kind `RECORD`."""

    slots: Sequence[Any]
    """Tree of the arguments in each input slot."""
    warm: Any
    """Tree of the arguments of the warm-up calls."""
    outputs: Sequence[Any]
    """Tree of the places of the outputs of each call."""
    left: Mapping[str, TensorLeaf]
    """Places of the state after the calls, by name."""
    imposed: Mapping[str, TensorLeaf]
    """State that every replay copies into the model first, by name. The judge writes it before the replay."""
    counts: Sequence[int]
    """Number of calls of each graph."""
