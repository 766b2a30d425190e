"""Read the results of runs and of held-out evaluations, compare and export them. Imports most of the core."""

from __future__ import annotations

from kernelrl_core.heldout.paired import TaskValues, paired_differences, shared_tasks, task_values
from kernelrl_core.heldout.results import Result, common_tasks, read_results
from kernelrl_core.heldout.scoreboard import pass_at_k
from kernelrl_core.prompts.sft_file import write_conversations
from kernelrl_core.recipe.differences import differences
from kernelrl_core.runs.checkpoints import choose_checkpoint
from kernelrl_core.runs.distill import Choice, Selection, distill, select_best
from kernelrl_core.runs.results import Purpose, Results, find_results, last_rows
from kernelrl_core.runs.weights import export_weights
from kernelrl_core.training.continuation import run_recipe

__all__ = [
    "Choice",
    "Purpose",
    "Result",
    "Results",
    "Selection",
    "TaskValues",
    "choose_checkpoint",
    "common_tasks",
    "differences",
    "distill",
    "export_weights",
    "find_results",
    "last_rows",
    "paired_differences",
    "pass_at_k",
    "read_results",
    "run_recipe",
    "select_best",
    "shared_tasks",
    "task_values",
    "write_conversations",
]
