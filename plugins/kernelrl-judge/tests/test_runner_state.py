"""The tensors that a runner finds in a candidate's module, and their match with those of the reference."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner.model_state import ModelState, named_tensors  # noqa: E402


class Late(dict[str, Any]):
    """Changes its tensors when its items are read."""

    def items(self) -> Any:
        for tensor in self.values():
            tensor.add_(1.0)
        return super().items()


class LateTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.ones(2)


class Hidden(torch.nn.Module):
    """Has two sets of variables."""

    __dict__ = property(lambda self: {"_buffers": {"other": torch.ones(2)}})  # type: ignore[assignment]


def test_no_code_of_a_module_runs_when_its_tensors_are_read() -> None:
    module = torch.nn.Module()
    vars(module)["_buffers"] = Late()
    module.register_buffer("average", torch.zeros(2))
    assert torch.equal(named_tensors(module)["average"], torch.zeros(2))

    module = torch.nn.Module()
    module.register_buffer("average", torch.zeros(2).as_subclass(LateTensor))
    assert not torch.Tensor.as_subclass(named_tensors(module)["average"], torch.Tensor).any()


def test_a_module_has_one_set_of_variables() -> None:
    module = Hidden()
    module.register_buffer("average", torch.zeros(2))
    assert [*named_tensors(module)] == ["average"]


def keeping(**kept: Any) -> Any:
    module = torch.nn.Module()
    vars(module).update(kept)
    return module


def test_a_parameter_that_is_kept_as_something_else_is_found_by_its_values_and_given_others() -> None:
    weight, bias = torch.randn(3, 2), torch.randn(3)
    module = keeping(drawn=[{"of": weight.clone()}], offset=bias.clone())
    state = ModelState()
    note = state.give(module, {"weight": weight, "bias": bias})
    assert (note["matched"], note["renamed"]) == (2, 2)
    state.impose({"weight": torch.ones(3, 2)})
    assert torch.equal(module.drawn[0]["of"], torch.ones(3, 2))
    assert torch.equal(module.offset, bias)
    # A match that was found once holds for the next model, with other values.
    other = keeping(drawn=[{"of": torch.zeros(3, 2)}], offset=torch.zeros(3))
    assert state.give(other, {"weight": weight, "bias": bias})["matched"] == 2
    assert torch.equal(other.drawn[0]["of"], weight)


def test_a_tensor_that_may_be_made_of_a_parameter_prevents_a_match() -> None:
    weight = torch.randn(3, 2)
    module = keeping(weight=weight.clone(), transposed=weight.t().contiguous())
    assert ModelState().give(module, {"weight": weight})["matched"] == 0
    module = keeping(weight=weight.clone())
    module.register_buffer("packed", weight.half())
    assert ModelState().give(module, {"weight": weight})["matched"] == 0


def test_a_tensor_that_calls_leave_in_an_attribute_is_found_by_its_name() -> None:
    module = keeping(likeness=torch.ones(2))
    state = ModelState()
    state.give(module, {})
    like = {"likeness": ["float32", [2]], "other": ["float32", [2]]}
    assert {name: tensor.tolist() for name, tensor in state.values(like, "cpu").items()} == {"likeness": [1.0, 1.0]}
