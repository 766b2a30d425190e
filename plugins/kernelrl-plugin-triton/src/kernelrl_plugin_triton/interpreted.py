"""Autotuning in Triton's interpreter, where no run time means anything and there is no driver to measure one with.

Imported by the zygote. Every configuration takes as long as any other, so the first that is left after pruning is
used. On a GPU the autotuner measures.
"""

from __future__ import annotations

from typing import Any

from triton.runtime.autotuner import Autotuner


def _bench(self: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
    return [1.0, 1.0, 1.0]


Autotuner._bench = _bench
