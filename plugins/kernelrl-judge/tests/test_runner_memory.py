"""What passes values on inside a runner, when a candidate has laid hands on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge import protocol, runner_windows, windows  # noqa: E402
from kernelrl_judge.mappings import also_elsewhere  # noqa: E402
from kernelrl_judge.own_code import own_code  # noqa: E402
from kernelrl_judge.returned_memory import ReturnedMemory  # noqa: E402
from kernelrl_judge.runner_memory import Originals, Outputs  # noqa: E402
from kernelrl_judge.sharing import overlaps_itself  # noqa: E402
from kernelrl_judge.value_trees import TensorLeaf  # noqa: E402


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


class LikeAll(tuple[None]):
    """Says that it equals whatever it is compared with."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_what_a_candidate_replaces_of_the_runner_is_put_back_and_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    window, call, code = windows.window, runner_windows.Windows._calls, protocol.send.__code__
    defaults = protocol.send.__defaults__
    # Afterwards all is as it was, whatever the test finds.
    monkeypatch.setattr(windows, "window", window)
    monkeypatch.setattr(windows, "time", windows.time)
    monkeypatch.setattr(runner_windows.Windows, "_calls", call)
    monkeypatch.setitem(sys.modules, "kernelrl_judge.windows", windows)
    assert not own_code()()

    def other(*_: object) -> None: ...

    replacements = [
        lambda: setattr(windows, "window", other),
        lambda: setattr(windows, "time", None),
        lambda: setattr(windows, "len", other),
        lambda: setattr(runner_windows.Windows, "_calls", other),
        lambda: setattr(protocol.send, "__code__", other.__code__),
        lambda: setattr(protocol.send, "__defaults__", LikeAll((None,))),
        lambda: sys.modules.update({"kernelrl_judge.windows": sys}),
    ]
    for replace in replacements:
        look = own_code()
        replace()
        assert look()
        assert (windows.window, runner_windows.Windows._calls, protocol.send.__code__) == (window, call, code)
        assert protocol.send.__defaults__ is defaults
        assert sys.modules["kernelrl_judge.windows"] is windows
        assert not hasattr(windows, "len")
        # What puts itself back afterwards was there.
        assert look()


def test_functions_of_the_library_that_the_runner_names_are_put_back_and_accuse_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load, code = json.load, json.loads.__code__
    monkeypatch.setattr(json, "load", load)
    look = own_code()
    json.load = lambda *_: None
    json.loads.__code__ = (lambda *_, **__: None).__code__
    try:
        assert not look()
        assert json.load is load
        assert json.loads.__code__ is code
    finally:
        json.loads.__code__ = code


def test_fresh_memory_holds_what_is_no_answer_until_calls_are_timed_and_no_setting_of_torch_tells_so() -> None:
    program = """
import torch
from kernelrl_judge.runner_memory import fill_fresh_memory

settings = torch.are_deterministic_algorithms_enabled()
fill_fresh_memory(0xFE)
for count in (3, 100, 1_000_000):
    assert (torch.empty(count) < -1e38).all(), count
    assert (torch.empty(count, dtype=torch.float16)).isnan().all(), count
    assert (torch.zeros(count) == 0).all(), count
fill_fresh_memory(None)
assert (torch.empty(50_000_000) == 0).all()
assert torch.are_deterministic_algorithms_enabled() == settings
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_memory_at_two_addresses_is_told_from_memory_at_one() -> None:
    import mmap
    import os

    descriptor = os.memfd_create("room")
    os.ftruncate(descriptor, 3 * mmap.PAGESIZE)
    both = [mmap.mmap(descriptor, 2 * mmap.PAGESIZE) for _ in range(2)]
    alone = mmap.mmap(descriptor, mmap.PAGESIZE, offset=2 * mmap.PAGESIZE)
    own = mmap.mmap(descriptor, 2 * mmap.PAGESIZE, access=mmap.ACCESS_COPY)
    addresses = [torch.frombuffer(place, dtype=torch.uint8).data_ptr() for place in (*both, alone, own)]
    assert also_elsewhere([*addresses, torch.ones(4).data_ptr()]) == set(addresses[:2])
    os.close(descriptor)


def test_memory_that_was_kept_tells_which_outputs_are_one() -> None:
    returned = ReturnedMemory()
    ring = [torch.ones(4), torch.ones(4)]
    for output in (*ring, *ring):
        returned.note(output)
    assert (returned.look(1, [], []), returned.overwrites) == ([], {0})

    alone = ReturnedMemory()
    pair = torch.ones(4)
    for output in (pair, pair, torch.ones(4), torch.ones(4)):
        # What nobody keeps may lie where another one lay.
        alone.note(output)
    assert (alone.look(2, [], []), alone.overwrites) == ([], set())
    given = torch.ones(8)
    alone.note(given[2:])
    alone.note(torch.ones(2))
    assert alone.look(2, [[torch.ones(1), given]], []) == [[0, -2]]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(4, 6).t(), False),
        (torch.zeros(8).as_strided((2, 3), (3, 2)), False),
        (torch.zeros(4, 1).expand(4, 6), True),
        (torch.zeros(4, 16).unfold(1, 4, 1), True),
        (torch.zeros(16).as_strided((2, 3), (4, 2)), True),
        (torch.zeros(16).unfold(0, 4, 4), False),
    ],
)
def test_a_tensor_whose_elements_share_memory_is_told_from_one_whose_elements_do_not(
    tensor: torch.Tensor, expected: bool
) -> None:
    assert overlaps_itself(tensor) is expected


def outputs_with_places(count: int) -> tuple[Outputs, list[torch.Tensor]]:
    descriptor = os.memfd_create("outputs")
    os.ftruncate(descriptor, 4096)
    outputs = Outputs(descriptor)
    trees = [TensorLeaf("float32", (2, 3), "cpu", 256 * index) for index in range(count)]
    return outputs, [place for places in outputs.places(trees) for place in places]


def test_outputs_that_could_be_stretched_to_the_expected_shape_are_refused() -> None:
    outputs, places = outputs_with_places(2)
    with pytest.raises(TypeError, match="another shape or dtype"):
        outputs.fill(places, [torch.ones(2, 3), torch.ones(1, 3)])


def test_outputs_that_cannot_be_copied_are_refused_for_their_shape() -> None:
    outputs, places = outputs_with_places(2)
    with pytest.raises(TypeError, match="another shape or dtype"):
        outputs.fill(places, [torch.ones(2, 3), torch.ones(5)])


def test_outputs_of_another_dtype_are_refused() -> None:
    outputs, places = outputs_with_places(1)
    with pytest.raises(TypeError, match="another shape or dtype"):
        outputs.fill(places, [torch.ones(2, 3, dtype=torch.float64)])


def test_outputs_that_require_gradients_fill_places_that_require_none() -> None:
    outputs, places = outputs_with_places(2)
    outputs.fill(places, [torch.full((2, 3), 7.0, requires_grad=True), torch.full((2, 3), 8.0)])
    assert [place.unique().tolist() for place in places] == [[7.0], [8.0]]
    assert not any(place.requires_grad for place in places)
