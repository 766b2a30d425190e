"""Tasks that cannot be used: the error names the task, and no candidate is the cause."""

from __future__ import annotations

import time

import pytest
import torch

from kernelrl_judge.task import source
from kernelrl_judge.task.source import TaskError, load_reference


@pytest.mark.parametrize("code", ["raise ValueError('boom')", "import sys; sys.exit(3)", "import not_there"])
def test_an_exception_of_a_task_is_an_error_of_the_task(code: str) -> None:
    with pytest.raises(TaskError, match="task mine: import failed"):
        load_reference(code, "mine")


def test_a_task_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LIMIT_S", 0.3)
    started = time.monotonic()
    with pytest.raises(TaskError, match=r"not finished within 0\.3 s"):
        load_reference("while True: pass", "mine")
    assert time.monotonic() - started < 10.0


def test_lack_of_device_memory_is_no_error_of_the_task() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        load_reference("import torch; raise torch.OutOfMemoryError('CUDA out of memory.')", "mine")
