"""Modes in which a backend executes candidates: `gpu`, `cpu`, and those below, in which nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNTIMED"]

UNTIMED: Mapping[str, str] = {
    "interpreter": "Triton's interpreter has no meaningful run time",
    "compile": "kernels are compiled here, and not executed",
}
"""Mode -> why its kernels have no run time."""
