"""Device memory of a judge that is kept from candidate to candidate."""

from __future__ import annotations

import gc

import pytest
import torch

from kernelrl_judge import exchange


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
    monkeypatch.setattr(exchange, "_KEPT_BYTES", 50)
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


def _tensors_alive() -> int:
    return sum(type(value) is torch.Tensor for value in gc.get_objects())
