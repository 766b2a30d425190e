"""Read the runs on disk: their state, journals and results. Imports more of the core than types and interfaces."""

from __future__ import annotations

from kernelrl_core.recipe.explanations import Metric, metric_of
from kernelrl_core.runs.directory import RunDir, State, find_run, list_runs
from kernelrl_core.runs.journal import JournalReader
from kernelrl_core.runs.review import needs_review
from kernelrl_core.runs.summary import recipe_plan, result_rows, steps_total, summary

__all__ = [
    "JournalReader",
    "Metric",
    "RunDir",
    "State",
    "find_run",
    "list_runs",
    "metric_of",
    "needs_review",
    "recipe_plan",
    "result_rows",
    "steps_total",
    "summary",
]
