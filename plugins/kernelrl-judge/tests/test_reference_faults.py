"""Tasks that cannot be used: the task is told of, and no candidate is blamed."""

from __future__ import annotations

import time

import pytest
import torch

from kernelrl_judge.task import source
from kernelrl_judge.task.source import TaskError, load_reference


@pytest.mark.parametrize("code", ["raise ValueError('boom')", "import sys; sys.exit(3)", "import not_there"])
def test_what_a_task_raises_is_an_error_of_the_task(code: str) -> None:
    with pytest.raises(TaskError, match="task mine: import failed"):
        load_reference(code, "mine")


def test_a_task_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LIMIT_S", 0.3)
    started = time.monotonic()
    with pytest.raises(TaskError, match=r"not finished within 0\.3 s"):
        load_reference("while True: pass", "mine")
    assert time.monotonic() - started < 10.0


def test_memory_that_others_have_taken_is_no_error_of_the_task() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        load_reference("import torch; raise torch.OutOfMemoryError('CUDA out of memory.')", "mine")
