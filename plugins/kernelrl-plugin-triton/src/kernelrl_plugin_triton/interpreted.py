"""What Triton's interpreter lacks here: an autotuner that can choose, and errors that show where they come from.

Imported by the zygote. Every configuration takes as long as any other, so the first that is left after pruning is
used: no run time means anything there, and there is no driver to measure one with. On a GPU the autotuner measures.
"""

from __future__ import annotations

import functools
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, InterpretedFunction


def _bench(self: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
    return [1.0, 1.0, 1.0]


def _unwrapped(call: Any) -> Any:
    """The interpreter puts the text of each exception of a kernel into one of its own, without the kernel's line."""

    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(self, *arguments, **named)
        except InterpreterError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None

    return wrapper


Autotuner._bench = _bench
for _class in (GridExecutor, InterpretedFunction):
    _class.__call__ = _unwrapped(_class.__call__)
