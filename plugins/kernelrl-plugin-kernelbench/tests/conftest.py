from __future__ import annotations

from pathlib import Path

import pytest

TASK = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * {factor}


def get_inputs():
    return [torch.randn(8)]


def get_init_inputs():
    return []


raise SystemExit("a task was executed")
"""


@pytest.fixture
def task_source():
    """Makes the source of a task that ends the process that executes it."""
    return lambda factor=2: TASK.format(factor=factor)


@pytest.fixture
def clone(tmp_path: Path, task_source) -> Path:
    """A fake clone of KernelBench: 20 tasks of level 1, 100 of level 2, 5 of level 3."""
    root = tmp_path / "clone"
    for level, count in ((1, 20), (2, 100), (3, 5)):
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in range(1, count + 1):
            (folder / f"{number}_Scale_by_{number}.py").write_text(task_source(level * 1000 + number))
    return root
