"""What passes values on inside a runner, when a candidate has laid hands on it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner_memory import Originals  # noqa: E402


def test_methods_that_a_candidate_replaced_are_put_back_and_what_it_added_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    originals = Originals()
    # Afterwards all is as it was, whatever the test finds.
    monkeypatch.setattr(torch, "frombuffer", torch.frombuffer)
    monkeypatch.setattr(torch.Tensor, "split", torch.Tensor.split)
    kind = torch.Tensor
    kind.clone = lambda self: None
    kind.split = lambda self: None
    kind.own = 7
    torch.frombuffer = None
    originals.restore()
    tensor = torch.ones(4)
    assert torch.equal(tensor.clone(), tensor)
    assert len(tensor.split(2)) == 2
    assert torch.frombuffer is not None
    assert tensor.own == 7
    del kind.own
