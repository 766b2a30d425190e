"""The order of one call whose outputs are compared, and the seed of the random numbers that a model draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.orders import Order

__all__ = ["Call", "seed"]


def seed(number: int, device: str) -> None:
    """Seed the generators in use, as `torch.manual_seed` does.

    `torch.manual_seed` also queues a seed for each type of device that is never initialised here.

    Args:
        device: `cpu` or `cuda`.
    """
    torch.default_generator.manual_seed(number)
    if device == "cuda":
        torch.cuda.manual_seed(number)


@attrs.frozen
class Call(Order):
    """The content of a frame of kind `CALL`. Each probe sets the fields that it needs."""

    arguments: Any
    """Tree of the inputs in the shared memory."""
    state: Any
    """Tree of the state that the model gets before the call. Empty: the model keeps its state."""
    returned_state: Mapping[str, Sequence[Any]]
    """Dtype and shape of each tensor of the state that is returned after the call, by name."""
    returns_inputs: bool = False
    keeps_arguments: bool = False
    """The arguments are kept until those of the next call are made, which therefore have other addresses."""
    reuses_arguments: bool = False
    """The inputs are written into the arguments of the previous call, if these were kept."""
    poison: int | None = None
    """Byte that fills free memory before the call."""
    poisoned_bytes: Sequence[int] = ()
    """Sizes in bytes of the device memory that is filled with it."""
    threads: int = 0
    """Number of threads of the CPU, if it is not that of the backend. Programs of an interpreted launch then have a
    random order."""
    repeats: bool = False
    """The call is made again and again with other numbers of threads, and that output is returned which differs most
    from the first one."""
    lists_operators: bool = False
    """A frame of kind `FACTS` with torch's operators follows the result."""
