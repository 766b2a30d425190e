"""The probe `stress`: where a family applies."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.types import EvaluationSettings

torch = pytest.importorskip("torch")

from small_tasks import failed, reference  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402


def reasons(task: Reference) -> str:
    left: list[str] = []
    list(stress.stress_calls(task, left))
    return "; ".join(left)


def families(task: Reference) -> set[str]:
    return {call.family for call in stress.stress_calls(task, [])}


def test_a_family_applies_where_the_reference_is_finite() -> None:
    assert "extremes: the reference is not finite" in reasons(reference("return torch.exp(16 * x)"))


def test_a_family_applies_where_the_reference_is_well_conditioned() -> None:
    task = reference("return torch.sin(1e4 * x)")
    assert "scale: the reference is not well conditioned" in reasons(task)
    assert "scale" not in families(task)


def test_milder_inputs_are_taken_where_harder_ones_are_not_finite() -> None:
    task = reference("return torch.exp(x)", "torch.randn(64, 64)")
    assert "scale" in families(task)
    assert task.facts["stress_variants"]["scale"] > 0


def test_no_order_of_equal_numbers_is_expected() -> None:
    def last_first(x: Any) -> Any:
        return 63 - x.flip(1).topk(4, dim=1).indices

    assert failed(reference("return x.topk(4, dim=1).indices"), last_first) == set()


def test_where_the_value_alone_counts_equal_numbers_are_tried() -> None:
    def ranks(x: Any) -> Any:
        return torch.zeros_like(x).scatter(1, (x[:, :, None] > x[:, None]).sum(2), x)

    assert "ties" in failed(reference("return x.sort(1).values"), ranks)


def test_results_in_double_precision_are_compared_as_such() -> None:
    task = reference("return (x.double() * x.double()).sum(1)", "torch.randn(8, 512)")
    assert failed(task, lambda x: x.double().square().flip(1).sum(1)) == set()
    assert failed(task, lambda x: x.square().sum(1).double())


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_tested_too(precision: Any) -> None:
    task = reference("return x.clamp(0, 1)", "torch.rand(8, 64)", settings=EvaluationSettings(precision=precision))
    assert failed(task, lambda x: x.clamp(0, 1)) == set()
    assert "scale" in failed(task, lambda x: x)


def test_a_fault_of_the_judge_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("a fault of the judge")

    task = reference("return x * 2")
    monkeypatch.setattr(task, "in_double", fails)
    with pytest.raises(ValueError, match="a fault of the judge"):
        failed(task, lambda x: x * 2)


def test_a_module_that_refuses_double_precision_decides_in_its_own() -> None:
    task = reference("return x.relu()", init="self.double = self.refuse\n    def refuse(self): raise ValueError('no')")
    assert "scale" in failed(task, lambda x: x)
    assert "Model.double() failed" in task.facts["no_double"]
