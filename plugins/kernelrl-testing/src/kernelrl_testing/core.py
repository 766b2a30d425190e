"""Private parts of the core for the tests of bundled plugins. Not public: they may change in any version."""

from __future__ import annotations

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.algorithms.loss_shaping import shape_samples, split_evenly
from kernelrl_core.cli import main as main_module
from kernelrl_core.cli.main import main
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.interfaces import requirements
from kernelrl_core.monitoring.costs import CostMeter
from kernelrl_core.monitoring.progress import Progress
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.planning.load import find_recipe
from kernelrl_core.prompts.extraction import extract, extract_file
from kernelrl_core.recipe.explain import explain
from kernelrl_core.recipe.schema import PriceSettings, SamplingOptions, TrainSettings
from kernelrl_core.runs.journal import Journal
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.sources.yaml import parse
from kernelrl_core.training.learner import Learner
from kernelrl_core.types import serialization
from kernelrl_core.types.training import MismatchSettings

__all__ = [
    "CostMeter",
    "Credit",
    "EvaluationService",
    "Journal",
    "Learner",
    "MismatchSettings",
    "PriceSettings",
    "Progress",
    "SamplingOptions",
    "Timeline",
    "TrainSettings",
    "explain",
    "extract",
    "extract_file",
    "find_recipe",
    "main",
    "main_module",
    "parse",
    "requirements",
    "sample_row",
    "serialization",
    "shape_samples",
    "split_evenly",
]
