"""Input families that the probe `stress` uses for a task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_tasks import failed, reference

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.probes.stress_calls import stress_calls
from kernelrl_judge.task.reference import Reference


def reasons(task: Reference) -> str:
    inapplicable: list[str] = []
    list(stress_calls(task, inapplicable))
    return "; ".join(inapplicable)


def families(task: Reference) -> set[str]:
    return {call.family for call in stress_calls(task, [])}


def test_a_family_applies_where_the_reference_is_finite() -> None:
    assert "extremes: the reference is not finite" in reasons(reference("return torch.exp(16 * x)"))


def test_a_family_applies_where_the_reference_is_well_conditioned() -> None:
    task = reference("return torch.sin(1e4 * x)")
    assert "scale: the reference is not well conditioned" in reasons(task)
    assert "scale" not in families(task)


def test_milder_inputs_are_taken_where_harder_ones_are_not_finite() -> None:
    task = reference("return torch.exp(x)", "torch.randn(64, 64)")
    assert "scale" in families(task)
    assert task.facts.stress_variants["scale"] > 0


def test_the_order_of_equal_numbers_is_free() -> None:
    def last_first(x: Any) -> Any:
        return 63 - x.flip(1).topk(4, dim=1).indices

    assert failed(reference("return x.topk(4, dim=1).indices"), last_first) == set()


def test_equal_numbers_are_tried_where_the_outputs_are_values() -> None:
    def ranks(x: Any) -> Any:
        return torch.zeros_like(x).scatter(1, (x[:, :, None] > x[:, None]).sum(2), x)

    assert "ties" in failed(reference("return x.sort(1).values"), ranks)


def test_outputs_in_double_precision_are_compared_in_double_precision() -> None:
    task = reference("return (x.double() * x.double()).sum(1)", "torch.randn(8, 512)")
    assert failed(task, lambda x: x.double().square().flip(1).sum(1)) == set()
    assert failed(task, lambda x: x.square().sum(1).double())


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_tested(precision: Any) -> None:
    task = reference("return x.clamp(0, 1)", "torch.rand(8, 64)", settings=EvaluationSettings(precision=precision))
    assert failed(task, lambda x: x.clamp(0, 1)) == set()
    assert "scale" in failed(task, lambda x: x)


def test_an_error_of_the_judge_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("an error of the judge")

    task = reference("return x * 2")
    monkeypatch.setattr(task, "in_double", fails)
    with pytest.raises(ValueError, match="an error of the judge"):
        failed(task, lambda x: x * 2)


def test_a_module_that_refuses_double_precision_is_tested_in_its_own_precision() -> None:
    task = reference("return x.relu()", init="self.double = self.refuse\n    def refuse(self): raise ValueError('no')")
    assert "scale" in failed(task, lambda x: x)
    assert "Model.double() failed" in (task.facts.no_double or "")
