"""One call of a candidate whose outputs are compared, as the judge orders it, and the random numbers it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import decode_tree, encode_tree

__all__ = ["Call", "seed"]


def seed(number: int, device: str) -> None:
    """What `torch.manual_seed` does to the generators in use; for kinds of devices that never start it keeps a note.

    Args:
        device: `cpu` or `cuda`.
    """
    torch.default_generator.manual_seed(number)
    if device == "cuda":
        torch.cuda.manual_seed(number)


@attrs.frozen
class Call:
    """The content of a frame of kind `CALL`. Each probe sets the fields that it needs."""

    arguments: Any
    """Tree of the shared inputs."""
    state: Any
    """Tree of the shared state that the model gets before the call; empty: it keeps its own."""
    returned_state: Mapping[str, Sequence[Any]]
    """Dtype and shape of the tensors of the state that are returned after the call, by name."""
    returns_inputs: bool = False
    keeps_arguments: bool = False
    """The arguments live until those of the next call are made, which then have other addresses."""
    reuses_arguments: bool = False
    """The inputs are written into the arguments of the call before, where these live."""
    poison: int | None = None
    """Byte that free memory is filled with."""
    poisoned_bytes: Sequence[int] = ()
    """Sizes of the device memory that is filled with it."""
    changes_order: bool = False
    """Threads and programs do their work in another order."""
    lists_operators: bool = False
    """A frame of kind `FACTS` with torch's operators follows the result."""

    def encoded(self) -> bytes:
        """Bytes for `decoded`."""
        return encode_tree(attrs.asdict(self, recurse=False))

    @classmethod
    def decoded(cls, body: bytes) -> Call:
        """The call that was encoded.

        Raises:
            ProtocolError: the bytes are no call.
        """
        try:
            return cls(**decode_tree(body))
        except TypeError as error:
            raise ProtocolError(f"no call: {error}") from None
