"""Original functions of torch that the runner needs, and their restoration after a candidate replaced them."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["TorchOriginals"]

_FUNCTIONS = ("frombuffer", "empty", "zeros", "_foreach_copy_")


class TorchOriginals:
    """Methods and functions of torch with which values are copied, from before a candidate was loaded."""

    def __init__(self) -> None:
        functions = {name: vars(torch)[name] for name in _FUNCTIONS}
        self._methods: dict[str, Any] = dict(vars(torch.Tensor))
        self._originals: list[tuple[Any, dict[str, Any]]] = [(torch, functions), (torch.Tensor, self._methods)]

    def restore(self) -> None:
        """Put back the attributes that were replaced, and remove added ones that hide an inherited method."""
        for owner, originals in self._originals:
            current = vars(owner)
            replaced = [name for name, value in originals.items() if current.get(name) is not value]
            for name in replaced:
                setattr(owner, name, originals[name])
        # The base class of `Tensor` is immutable, so it has all original methods.
        for name in vars(torch.Tensor).keys() - self._methods.keys():
            if hasattr(torch._C.TensorBase, name):
                delattr(torch.Tensor, name)
