"""Calls in which threads and programs work in another order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner import reordering  # noqa: E402
from kernelrl_judge.runner.reordering import is_reordered, most_different, reordered  # noqa: E402


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


# --- repeated calls --------------------------------------------------------------------------------------------------

RIGHT, WRONG = torch.ones(4), torch.tensor([1.0, 1.0, 2.0, 1.0])


def test_an_output_that_is_wrong_by_chance_is_found_although_all_others_are_right() -> None:
    assert torch.equal(most_different(RIGHT.clone, WRONG), WRONG)


def test_one_wrong_output_of_many_is_found() -> None:
    outputs: Iterator[Any] = iter([RIGHT] * 5 + [WRONG] + [RIGHT] * 1000)
    assert torch.equal(most_different(lambda: next(outputs), RIGHT), WRONG)


def test_an_output_of_another_shape_is_returned() -> None:
    outputs: Iterator[Any] = iter([RIGHT] * 5 + [RIGHT[:2]])
    assert torch.equal(most_different(lambda: next(outputs), RIGHT), RIGHT[:2])


PAUSED = """
import ctypes, time
import kernelrl_judge.runner.reordering as reordering

counted = ctypes.c_long()
Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
@Handler
def count(number):
    counted.value += 1
class Library:
    def __getattr__(self, name):
        return count if name == "usleep" else getattr(libc, name)
libc = reordering._libc
reordering._libc = Library()
with reordering._paused_threads():
    while counted.value < 3:
        time.sleep(0.001)
before = counted.value
time.sleep(0.01)
assert counted.value <= before + 1
print("paused")
"""


def test_threads_are_paused_while_calls_are_repeated() -> None:
    done = subprocess.run([sys.executable, "-c", PAUSED], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "paused\n", done.stderr
