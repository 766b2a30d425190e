"""The generators of random numbers, begun anew."""

from __future__ import annotations

import torch

__all__ = ["seed"]


def seed(number: int, device: str) -> None:
    """What `torch.manual_seed` does to the generators in use; for kinds of devices that never start it keeps a note.

    Args:
        device: `cpu` or `cuda`.
    """
    torch.default_generator.manual_seed(number)
    if device == "cuda":
        torch.cuda.manual_seed(number)
