"""Indices of inputs. Seed, index and device decide the values of inputs, so each purpose has indices of its own."""

from __future__ import annotations

__all__ = [
    "FIRST_STRESSED",
    "FIRST_TIMED",
    "LEARNED",
    "MEMORY_FLOOR",
    "RESIZED",
    "WARM",
]

FIRST_TIMED = 1 << 20
"""Index of the first inputs for timing. Lower indices are for trials and probes."""
LEARNED = FIRST_TIMED - 2
"""Index of the inputs from which facts about a task are determined. Further inputs have the indices before it."""
FIRST_STRESSED = FIRST_TIMED - 2
"""Index of the inputs of the first family of the probe `stress`. Further families have the indices before it."""
MEMORY_FLOOR = FIRST_TIMED - 3
"""Index of the inputs that show which bytes decide an output."""
RESIZED = FIRST_TIMED - 32
"""Index of the inputs of other sizes."""
WARM = FIRST_TIMED - 128
"""Index of the inputs of the calls before a recording. No other call has these inputs."""
