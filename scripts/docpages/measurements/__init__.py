"""What the page of measurements shows of each file of `benchmarks/results`.

A new result needs a declaration: a title, a sentence on what it measures, and the figures to show.
"""

from __future__ import annotations

from docpages.measurements.core import CORE, HELD_OUT, TOOLS
from docpages.measurements.declaration import Measurement
from docpages.measurements.evaluation import CORRECTNESS, ELSEWHERE, EVALUATION, TIMING
from docpages.measurements.learning import LEARNING, RETRIEVAL

SECTIONS: tuple[tuple[str, tuple[Measurement, ...]], ...] = (
    ("Core", CORE),
    ("Evaluation", EVALUATION),
    ("Timing of kernels", TIMING),
    ("Correctness and hacks", CORRECTNESS),
    ("Clusters and clouds", ELSEWHERE),
    ("Held-out evaluations", HELD_OUT),
    ("Retrieval of examples", RETRIEVAL),
    ("Learning", LEARNING),
    ("Tools", TOOLS),
)
"""Heading -> its measurements."""
