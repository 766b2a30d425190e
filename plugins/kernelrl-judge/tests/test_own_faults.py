"""A fault of the judge is raised; only what a task's code raises switches a probe off."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference  # noqa: E402

from kernelrl_judge import gathering, stress  # noqa: E402


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError("a fault of the judge")


def test_a_fault_in_the_making_of_parameters_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    task = reference("return self.layer(x)", init="self.layer = torch.nn.Linear(64, 8)")
    monkeypatch.setattr(stress, "with_spread", fails)
    with pytest.raises(ValueError, match="a fault of the judge"):
        stress.prepared(task, SETTINGS, spread=True)


def test_a_fault_in_the_way_to_double_precision_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    task = reference("return x * 2")
    task.facts["large"] = False
    monkeypatch.setattr(task, "in_double", fails)
    with pytest.raises(ValueError, match="a fault of the judge"):
        stress._exact(task)


def test_a_module_that_refuses_double_precision_is_no_fault() -> None:
    task = reference("return x * 2", init="self.double = self.refuse\n    def refuse(self): raise ValueError('no')")
    task.facts["large"] = False
    assert stress._exact(task) is None
    assert "Model.double() failed" in task.facts["no_double"]


def test_a_fault_in_the_count_of_reads_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    task = reference("return x[ids]", "torch.randn(100, 4), torch.randint(0, 100, (8,))", names="x, ids")
    given = task.inputs(1)
    monkeypatch.setattr(gathering._Reads, "_count", fails)
    with pytest.raises(ValueError, match="a fault of the judge"):
        gathering.as_read(task, given)


def test_a_reference_that_cannot_be_looked_at_is_no_fault() -> None:
    forward = (
        "if torch.overrides._get_current_function_mode() is not None: raise ValueError('no')\n        return x[ids]"
    )
    task = reference(forward, "torch.randn(100, 4), torch.randint(0, 100, (8,))", names="x, ids")
    assert [tensor.numel() for tensor in gathering.as_read(task, task.inputs(1))] == [400, 8]
