"""Indices of inputs, each of which gives inputs of its own for a seed. Those of the trials begin at 0."""

from __future__ import annotations

__all__ = ["FIRST_STRESSED", "FIRST_TIMED", "LEARNED", "RESIZED", "WARM", "WEIGHED"]

FIRST_TIMED = 1 << 20
"""From here on they belong to timing, those below to the trials and the probes."""
LEARNED = FIRST_TIMED - 2
"""By which something is found out about a task once; where two are compared, the other is the one before."""
FIRST_STRESSED = FIRST_TIMED - 2
"""Of the first family of the probe `stress`; that of each other family is the one before."""
WEIGHED = FIRST_TIMED - 3
"""By which it is found out what decides an output."""
RESIZED = FIRST_TIMED - 32
"""Of other sizes."""
WARM = FIRST_TIMED - 128
"""Of the calls before a recording, which no other call uses."""
