"""Copies of values inside a runner: after a candidate replaced methods of torch, and for outputs of another form."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.protocol.values import TensorLeaf  # noqa: E402
from kernelrl_judge.runner.shared_memory import SharedOutputs  # noqa: E402
from kernelrl_judge.runner.torch_originals import TorchOriginals  # noqa: E402
from kernelrl_judge.timed_calls.outputs import copy_outputs  # noqa: E402


def test_methods_that_a_candidate_replaced_are_put_back_and_what_it_added_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    originals = TorchOriginals()
    # These are restored after the test even if it fails.
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


def test_fresh_memory_is_poisoned_until_calls_are_timed_and_no_setting_of_torch_shows_it() -> None:
    # glibc may hand out a smaller block from the cache of a thread without filling it.
    program = """
import torch
from kernelrl_judge.runner.allocations import fill_fresh_memory

settings = torch.are_deterministic_algorithms_enabled()
fill_fresh_memory(0xFE)
for count in (1000, 10_000, 1_000_000):
    assert (torch.empty(count) < -1e38).all(), count
    assert (torch.empty(count, dtype=torch.float16)).isnan().all(), count
    assert (torch.zeros(count) == 0).all(), count
fill_fresh_memory(None)
assert (torch.empty(50_000_000) == 0).all()
assert torch.are_deterministic_algorithms_enabled() == settings
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def places_of_outputs(count: int) -> list[torch.Tensor]:
    descriptor = os.memfd_create("outputs")
    os.ftruncate(descriptor, 4096)
    outputs = SharedOutputs(descriptor)
    trees = [TensorLeaf("float32", (2, 3), "cpu", 256 * index) for index in range(count)]
    return [place for places in outputs.places(trees) for place in places]


def test_outputs_that_could_be_stretched_to_the_expected_shape_are_refused() -> None:
    places = places_of_outputs(2)
    with pytest.raises(TypeError, match="another shape or dtype"):
        copy_outputs(places, [torch.ones(2, 3), torch.ones(1, 3)])


def test_outputs_that_cannot_be_copied_are_refused_for_their_shape() -> None:
    places = places_of_outputs(2)
    with pytest.raises(TypeError, match="another shape or dtype"):
        copy_outputs(places, [torch.ones(2, 3), torch.ones(5)])


def test_outputs_of_another_dtype_are_refused() -> None:
    places = places_of_outputs(1)
    with pytest.raises(TypeError, match="another shape or dtype"):
        copy_outputs(places, [torch.ones(2, 3, dtype=torch.float64)])


def test_outputs_that_require_gradients_fill_places_that_require_none() -> None:
    places = places_of_outputs(2)
    copy_outputs(places, [torch.full((2, 3), 7.0, requires_grad=True), torch.full((2, 3), 8.0)])
    assert [place.unique().tolist() for place in places] == [[7.0], [8.0]]
    assert not any(place.requires_grad for place in places)
