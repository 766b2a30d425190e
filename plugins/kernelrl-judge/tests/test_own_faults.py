"""A fault of the judge is raised; only what a task's code raises switches a probe off."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402


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
