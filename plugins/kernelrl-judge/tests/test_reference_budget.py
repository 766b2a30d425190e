"""Numbers of calls of slow references."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_core.api.evaluators import EvaluationSettings  # noqa: E402
from kernelrl_judge.task.reference_budget import ReferenceBudget  # noqa: E402
from kernelrl_judge.task.source import TaskError  # noqa: E402


def test_a_fast_reference_has_all_families_and_regions() -> None:
    budget = ReferenceBudget.of(reference("return x * 2"))
    assert budget.families >= 7
    assert budget.regions >= 48


def test_a_slow_reference_has_fewer() -> None:
    task = reference("return x * 2", settings=EvaluationSettings(timeout_s=60.0))
    task.facts.call_s = 2.0
    assert ReferenceBudget.of(task) == ReferenceBudget(families=3, regions=7)


def test_a_reference_whose_trials_take_too_long_is_an_error_of_the_task() -> None:
    task = reference("return x * 2", settings=EvaluationSettings(timeout_s=60.0))
    task.facts.call_s = 13.0
    with pytest.raises(TaskError, match=r"one call of the reference takes 13 s.*evaluation.timeout_s"):
        ReferenceBudget.of(task)
