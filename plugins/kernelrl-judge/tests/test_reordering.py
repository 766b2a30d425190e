"""Calls in which threads and programs work in another order."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner import reordering  # noqa: E402
from kernelrl_judge.runner.reordering import is_reordered, reordered  # noqa: E402


def test_threads_are_more_than_one_while_a_call_is_reordered_and_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with reordered(threads=7):
        assert (torch.get_num_threads() >= 4, is_reordered()) == (True, True)
    assert (torch.get_num_threads(), is_reordered()) == (before, False)


def test_threads_are_as_many_as_before_if_a_library_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def omp_set_num_threads(self, count: int) -> None:
            if count > 1:
                raise OSError("one thread is all there is")

    before = torch.get_num_threads()
    monkeypatch.setattr(reordering, "_openmp_libraries", lambda: [(Library(), 1)])
    with pytest.raises(OSError, match="one thread"), reordered(threads=7):
        pass
    assert (torch.get_num_threads(), is_reordered()) == (before, False)
