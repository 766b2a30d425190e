from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from kernelrl_plugin_torch.files import read_tensors, write_tensors


def test_tensors_are_read_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.pt", {"weights": {"w": torch.arange(3)}, "steps": 2})
    found = read_tensors(tmp_path / "a.pt")
    assert (found["weights"]["w"].tolist(), found["steps"]) == ([0, 1, 2], 2)


def test_a_full_disk_is_the_error_of_the_disk() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_tensors(Path("/dev/full"), {"w": torch.zeros(100_000)})
    assert caught.value.errno == errno.ENOSPC
