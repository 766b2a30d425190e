"""Run episodes from another program, such as an adapter or a notebook, and read earlier runs.

Imports the whole core except the command line.
"""

from __future__ import annotations

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.checked_kernels import CheckedKernel
from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.evaluation_service import EvaluationService, request_key
from kernelrl_core.environment.one_kernel import (
    check_secret,
    evaluate_kernel,
    find_backends,
    why_untimed,
    with_timing,
)
from kernelrl_core.environment.scoring import Judgement, PromptExamples
from kernelrl_core.environment.turn_text import backend_note, turn_lines
from kernelrl_core.planning.load import load_recipe, recipe_from_mapping
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.prompts.history import require_kept_thinking
from kernelrl_core.recipe.evaluation_spec import DEFAULT_EVALUATION, EvaluationSpec, read_evaluation_spec, spec_of
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.episode import EpisodeId, EpisodeRunner, Renderer, reply_limit
from kernelrl_core.rollout.sampler import Sampled, SampleRequest
from kernelrl_core.runs.directory import find_run
from kernelrl_core.runs.distill import Choice, distill
from kernelrl_core.sources.kernel_files import KernelReader, kernel_files, read_kernel
from kernelrl_core.sources.packages import needs_package
from kernelrl_core.tasks.leaks import LeakGuard
from kernelrl_core.tasks.lookup import find_task, read_task_text
from kernelrl_core.tasks.schedule import schedule
from kernelrl_core.tasks.selection import eval_tasks, training_tasks
from kernelrl_core.types.replies import Extraction
from kernelrl_core.types.seeds import request_seed
from kernelrl_core.types.tasks import ExcludedExample, ShownExample
from kernelrl_core.types.turns import SampleId, Score, Turn

__all__ = [
    "DEFAULT_EVALUATION",
    "CandidateEvaluator",
    "CheckedKernel",
    "Choice",
    "Environment",
    "EpisodeId",
    "EpisodeRunner",
    "EvaluationService",
    "EvaluationSpec",
    "ExcludedExample",
    "Extraction",
    "Judgement",
    "KernelReader",
    "LeakGuard",
    "PromptExamples",
    "Recipe",
    "Registry",
    "Renderer",
    "SampleId",
    "SampleRequest",
    "Sampled",
    "Score",
    "ShownExample",
    "Turn",
    "Use",
    "backend_note",
    "check_secret",
    "distill",
    "eval_tasks",
    "evaluate_kernel",
    "find_backends",
    "find_run",
    "find_task",
    "kernel_files",
    "load_recipe",
    "needs_package",
    "read_evaluation_spec",
    "read_kernel",
    "read_task_text",
    "recipe_from_mapping",
    "registry",
    "reply_limit",
    "request_key",
    "request_seed",
    "require_kept_thinking",
    "schedule",
    "spec_of",
    "training_tasks",
    "turn_lines",
    "why_untimed",
    "with_timing",
]
