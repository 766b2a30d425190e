"""Memory that judge and runner share: files and arenas of the judge, and the runner's view of them."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
import torch

from kernelrl_judge.peer import memory
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, encode_tree
from kernelrl_judge.runner.shared_memory import SharedInputs, refilled


class FakeArena:
    """Device memory on a device of 100 bytes."""

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


def test_memory_above_the_share_of_a_judge_is_freed_between_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "Arena", FakeArena)
    monkeypatch.setattr(memory, "_MIN_ARENA_BYTES", 10)
    monkeypatch.setattr(memory, "kept_bytes", lambda: 50)
    arenas = memory.Arenas()
    arenas.fit(40, 55)
    arenas.shrink()
    assert (arenas.inputs.size, arenas.outputs.size) == (40, 10)
    arenas.close()
    assert FakeArena.used == 0


def test_memory_that_could_not_be_replaced_is_allocated_for_the_next_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "Arena", FakeArena)
    monkeypatch.setattr(memory, "_MIN_ARENA_BYTES", 1)
    arenas = memory.Arenas()
    with pytest.raises(MemoryError):
        arenas.fit(1000, 10)
    assert arenas.fit(0, 10)
    assert (arenas.inputs.size > 0, arenas.outputs.size) == (True, 10)
    arenas.close()
    assert FakeArena.used == 0


def test_shared_tensors_are_freed_without_the_garbage_collector() -> None:
    files = memory.FileExchange()
    gc.collect()
    gc.disable()
    try:
        before = _tensors_alive()
        files.share([torch.ones(4), {"scale": torch.ones(2)}])
        assert _tensors_alive() == before
    finally:
        gc.enable()
        files.close()


def test_announced_inputs_have_their_values_after_they_are_shared() -> None:
    files = memory.FileExchange()
    given = [[torch.arange(1000.0)], [torch.ones(7)]]
    staged = SharedInputs(files.inputs).announced(files.announce(given, 0))
    assert [bool(values[0].any()) for values in staged] == [False, False]
    files.share(given)
    assert [torch.equal(values[0], wanted[0]) for values, wanted in zip(staged, given, strict=True)] == [True, True]
    files.close()


def test_writes_of_a_candidate_to_its_inputs_are_private() -> None:
    files = memory.FileExchange()
    given = [[torch.ones(4)]]
    tree = files.announce(given, 0)
    staged = SharedInputs(files.inputs).announced(tree)
    files.share(given)
    staged[0][0].zero_()
    assert SharedInputs(files.inputs).announced(tree)[0][0].tolist() == [1.0] * 4
    files.close()


def test_cleared_memory_has_nothing_of_an_earlier_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(FakeArena):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            self.held = torch.ones(size, dtype=torch.uint8)

        def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            return self.held[offset:]

    monkeypatch.setattr(memory, "Arena", Held)
    arenas = memory.Arenas()
    arenas.clear()
    both: list[Any] = [arenas.inputs, arenas.outputs]
    assert [int(arena.held.sum()) for arena in both] == [0, 0]
    arenas.close()


def test_inputs_have_the_strides_that_the_task_gave_them() -> None:
    files = memory.FileExchange()
    numbers = torch.arange(24.0)
    given = [
        numbers.view(4, 6).t(),
        numbers.view(4, 6)[:, 1:5:2],
        numbers.view(4, 6)[:, :1].expand(4, 3),
        numbers.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        numbers[:1].expand(5, 5),
        torch.empty(0, 3).t(),
    ]
    inputs = SharedInputs(files.inputs)
    tree = decode_tree(encode_tree(files.share(given)))
    inputs.refresh()
    staged = inputs.announced(tree)
    for found in (inputs.values(tree, "cpu"), staged):
        assert [torch.equal(*pair) for pair in zip(found, given, strict=True)] == [True] * 6
        assert [tensor.stride() for tensor in found[:5]] == [tensor.stride() for tensor in given[:5]]
    files.close()


def test_inputs_are_aligned_as_the_task_has_them() -> None:
    files = memory.FileExchange()
    given = [torch.arange(24.0)[1:], torch.arange(24.0)[4:], torch.arange(24).view(4, 6)[1:, 1:]]
    inputs = SharedInputs(files.inputs)
    tree = files.share(given)
    inputs.refresh()
    for found in (inputs.values(tree, "cpu"), inputs.announced(tree)):
        assert [torch.equal(*pair) for pair in zip(found, given, strict=True)] == [True] * 3
        assert [tensor.data_ptr() % 16 for tensor in found] == [4, 0, 8]
    files.close()


def test_new_inputs_are_written_into_earlier_tensors_unless_elements_share_memory() -> None:
    old = [torch.ones(4, 6).t(), torch.ones(4, 1).expand(4, 3)]
    new = [torch.zeros(4, 6).t(), torch.zeros(4, 1).expand(4, 3)]
    found = refilled(old, new)
    assert (found[0] is old[0], found[1] is new[1]) == (True, True)
    assert not old[0].any()


def test_the_file_of_inputs_cannot_be_made_shorter() -> None:
    files = memory.FileExchange()
    files.share([torch.ones(4096)])
    handle = os.open(f"/proc/self/fd/{files.inputs}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.ftruncate(handle, 0)
    os.close(handle)
    files.close()


@pytest.mark.parametrize("offset", [1 << 20, (1 << 48) + 1, (1 << 63) - 1])
def test_an_output_outside_of_the_file_is_a_protocol_error(offset: int) -> None:
    files = memory.FileExchange()
    files.make_room(1024)
    with pytest.raises(ProtocolError):
        files.collect(torch.ones(4), TensorLeaf("float32", (4,), "cpu", offset))
    files.close()


def _tensors_alive() -> int:
    return sum(type(value) is torch.Tensor for value in gc.get_objects())
