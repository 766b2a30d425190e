"""The evaluator `local`: its component, its options, its facts about this machine, and one evaluation."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kernelrl_core.api.components import Use, component_block, registry
from kernelrl_core.api.config import InstalledGpu, PositiveInt
from kernelrl_core.api.evaluators import Outcome
from kernelrl_judge.client import pool
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def build_jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of concurrent builds of the evaluators that a test makes, on a machine with 6 cores and two GPUs."""
    jobs: list[int] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.setattr(pool, "visible_gpus", lambda: (InstalledGpu("GPU-1"), InstalledGpu("GPU-2")))
    monkeypatch.setattr(pool, "Builds", jobs.append)
    return jobs


def test_a_recipe_makes_the_evaluator_with_its_options(build_jobs: list[int]) -> None:
    use = component_block("evaluator", {"use": "local", "workers": 2, "gpu_workers": 1, "build_workers": 3}, registry())
    evaluator = registry().make("evaluators", use)
    assert isinstance(evaluator, LocalEvaluator)
    assert (evaluator.on_cpu.size, evaluator.on_gpu.size, build_jobs) == (2, 2, [3])


def test_the_defaults_depend_on_cores_and_gpus(build_jobs: list[int]) -> None:
    evaluator = LocalEvaluator(LocalConfig())
    # One lane per core; on each of two GPUs one lane per two cores; compilers leave two cores to each GPU.
    assert (evaluator.on_cpu.size, evaluator.on_gpu.size, build_jobs) == (6, 6, [2])


def test_a_gpu_has_at_most_8_evaluations_by_default(build_jobs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(40)))
    evaluator = LocalEvaluator(LocalConfig())
    assert (evaluator.on_gpu.size, build_jobs) == (16, [36])


def test_without_a_gpu_a_build_per_core_is_made(build_jobs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "visible_gpus", lambda: ())
    evaluator = LocalEvaluator(LocalConfig())
    assert (evaluator.on_gpu.size, build_jobs) == (0, [6])


def test_the_recipe_of_the_readme_is_valid() -> None:
    (gpu_workers,) = re.findall(r"evaluator: \{use: local, gpu_workers: (\d+)\}", README)
    use = component_block("evaluator", {"use": "local", "gpu_workers": int(gpu_workers)}, registry())
    assert use.options == LocalConfig(gpu_workers=PositiveInt(int(gpu_workers)))


def test_the_facts_about_this_machine_begin_with_the_isolation_level() -> None:
    isolation, *missing = LocalConfig().found_here()
    assert (isolation.label, isolation.state) == ("isolation", "ok")
    assert re.match(r"level [0-4] of 4: ", isolation.detail)
    assert all(fact.state == "weak" and fact.fix for fact in missing)


def test_the_example_of_a_backend_is_correct(evaluate: Evaluate) -> None:
    example = registry().make("backends", Use("triton")).facts.example
    request = make_request(
        example.kernel, example.reference, "triton", backend_options={"mode": "interpreter"}, settings={"trials": 2}
    )
    evaluation = evaluate(request)
    assert (evaluation.outcome, evaluation.tests_passed) == (Outcome.CORRECT, 2), evaluation.detail
