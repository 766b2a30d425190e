"""Device memory of a judge that is kept from candidate to candidate."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from kernelrl_judge.peer import memory as exchange
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, encode_tree
from kernelrl_judge.runner.memory import Inputs, refilled


class FakeArena:
    """Memory of which there are 100 bytes."""

    used = 0

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def create(cls, size: int, device: int) -> FakeArena:
        if cls.used + size > 100:
            raise MemoryError
        cls.used += size
        return cls(size)

    def close(self) -> None:
        FakeArena.used -= self.size
        self.size = 0


def test_memory_beyond_what_is_kept_is_given_back_between_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "Arena", FakeArena)
    monkeypatch.setattr(exchange, "_LEAST_BYTES", 10)
    monkeypatch.setattr(exchange.device_facts, "kept_bytes", lambda: 50)
    arenas = exchange.Arenas()
    arenas.fit(40, 55)
    arenas.shrink()
    assert (arenas.inputs.size, arenas.outputs.size) == (40, 10)
    arenas.close()
    assert FakeArena.used == 0


def test_memory_that_could_not_be_replaced_is_made_anew_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "Arena", FakeArena)
    monkeypatch.setattr(exchange, "_LEAST_BYTES", 1)
    arenas = exchange.Arenas()
    with pytest.raises(MemoryError):
        arenas.fit(1000, 10)
    assert arenas.fit(0, 10)
    assert (arenas.inputs.size > 0, arenas.outputs.size) == (True, 10)
    arenas.close()
    assert FakeArena.used == 0


def test_tensors_that_were_shared_do_not_wait_for_the_garbage_collector() -> None:
    files = exchange.FileExchange()
    gc.collect()
    gc.disable()
    try:
        before = _tensors_alive()
        files.share([torch.ones(4), {"scale": torch.ones(2)}])
        assert _tensors_alive() == before
    finally:
        gc.enable()
        files.close()


def test_inputs_that_are_announced_are_there_when_they_are_shared() -> None:
    files = exchange.FileExchange()
    given = [[torch.arange(1000.0)], [torch.ones(7)]]
    staged = Inputs(files.inputs).announced(files.announce(given, 0))
    assert [bool(values[0].any()) for values in staged] == [False, False]
    files.share(given)
    assert [torch.equal(values[0], wanted[0]) for values, wanted in zip(staged, given, strict=True)] == [True, True]
    files.close()


def test_what_a_candidate_writes_to_its_inputs_stays_with_it() -> None:
    files = exchange.FileExchange()
    given = [[torch.ones(4)]]
    tree = files.announce(given, 0)
    staged = Inputs(files.inputs).announced(tree)
    files.share(given)
    staged[0][0].zero_()
    assert Inputs(files.inputs).announced(tree)[0][0].tolist() == [1.0] * 4
    files.close()


def test_a_candidate_finds_nothing_of_the_one_before_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(FakeArena):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            self.held = torch.ones(size, dtype=torch.uint8)

        def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            return self.held[offset:]

    monkeypatch.setattr(exchange, "Arena", Held)
    arenas = exchange.Arenas()
    arenas.clear()
    assert [int(arena.held.sum()) for arena in (arenas.inputs, arenas.outputs)] == [0, 0]
    arenas.close()


def test_inputs_have_the_strides_that_the_task_gave_them() -> None:
    files = exchange.FileExchange()
    numbers = torch.arange(24.0)
    given = [
        numbers.view(4, 6).t(),
        numbers.view(4, 6)[:, 1:5:2],
        numbers.view(4, 6)[:, :1].expand(4, 3),
        numbers.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        numbers[:1].expand(5, 5),
        torch.empty(0, 3).t(),
    ]
    inputs = Inputs(files.inputs)
    tree = decode_tree(encode_tree(files.share(given)))
    inputs.refresh()
    staged = inputs.announced(tree)
    for found in (inputs.values(tree, "cpu"), staged):
        assert [torch.equal(*pair) for pair in zip(found, given, strict=True)] == [True] * 6
        assert [tensor.stride() for tensor in found[:5]] == [tensor.stride() for tensor in given[:5]]
    files.close()


def test_inputs_are_aligned_as_the_task_has_them() -> None:
    files = exchange.FileExchange()
    given = [torch.arange(24.0)[1:], torch.arange(24.0)[4:], torch.arange(24).view(4, 6)[1:, 1:]]
    inputs = Inputs(files.inputs)
    tree = files.share(given)
    inputs.refresh()
    for found in (inputs.values(tree, "cpu"), inputs.announced(tree)):
        assert [torch.equal(*pair) for pair in zip(found, given, strict=True)] == [True] * 3
        assert [tensor.data_ptr() % 16 for tensor in found] == [4, 0, 8]
    files.close()


def test_new_inputs_lie_where_the_ones_before_lay_but_for_elements_that_share_memory() -> None:
    old = [torch.ones(4, 6).t(), torch.ones(4, 1).expand(4, 3)]
    new = [torch.zeros(4, 6).t(), torch.zeros(4, 1).expand(4, 3)]
    found = refilled(old, new)
    assert (found[0] is old[0], found[1] is new[1]) == (True, True)
    assert not old[0].any()


def test_nobody_makes_the_file_of_inputs_shorter() -> None:
    files = exchange.FileExchange()
    files.share([torch.ones(4096)])
    handle = os.open(f"/proc/self/fd/{files.inputs}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.ftruncate(handle, 0)
    os.close(handle)
    files.close()


@pytest.mark.parametrize("offset", [1 << 20, (1 << 48) + 1, (1 << 63) - 1])
def test_an_output_beyond_the_file_is_a_forged_answer(offset: int) -> None:
    files = exchange.FileExchange()
    files.make_room(1024)
    with pytest.raises(ProtocolError):
        files.collect(torch.ones(4), TensorLeaf("float32", (4,), "cpu", offset))
    files.close()


def _tensors_alive() -> int:
    return sum(type(value) is torch.Tensor for value in gc.get_objects())
