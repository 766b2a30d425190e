"""Number of floating-point operations of a computation."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["OperationCounter"]


class OperationCounter(TorchDispatchMode):
    """Counts floating-point operations by torch's formulas, and notices convolutions.

    Replaces torch's own `FlopCounterMode`, which imports torch's compiler first: seconds in each judge.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.has_convolutions = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True makes torch import its compiler, to exclude this class from compilation.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import flop_registry

        found = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=found)
            self.has_convolutions |= "convolution" in func.name()
        return found
