"""Which tensors a runner finds in a candidate's module, whatever classes that is made of."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner_state import named_tensors  # noqa: E402


class Late(dict[str, Any]):
    """Brings what it holds up to date when somebody goes through it."""

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


def test_no_code_of_a_module_runs_when_its_tensors_are_asked_for() -> None:
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
