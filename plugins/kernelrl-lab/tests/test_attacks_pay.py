"""The attacks are real: a harness without defences pays for them. They run in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_lab.catalogue import FIXTURES

HARNESS = Path(__file__).with_name("naive_harness.py")
WRONG = (
    "A3-triton-matmul",
    "A5-triton",
    "A5-triton-search",
    "B6-triton",
    "B8-triton",
    "B15-triton",
    "B21-triton",
    "B23-triton",
    "B24-triton",
    "B26-triton",
    "B27-triton",
    "B28-triton",
    "B29-triton",
    "C1-triton",
    "C2-triton",
    "C4-triton",
    "E11-triton",
)
"""Taken for right, whatever they compute."""
FAST = ("C2-cpp-sampled", "C6-cpp", "C8-cpp", "D10-cpp", "D11-cpp", "D15-cpp")
"""Paid for speed that they do not have."""


def _paid(id_: str, folder: Path) -> dict[str, object]:
    fixture = next(fixture for fixture in FIXTURES if fixture.id == id_)
    (folder / "reference.py").write_text(fixture.task)
    (folder / "candidate.py").write_text(fixture.candidate)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "TORCH_EXTENSIONS_DIR": str(folder.parent / "extensions"),
    }
    done = subprocess.run(
        [sys.executable, str(HARNESS), "reference.py", "candidate.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("id_", WRONG)
def test_a_harness_without_defences_takes_it_for_right(id_: str, tmp_path: Path) -> None:
    assert _paid(id_, tmp_path)["correct"] is True


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("ninja") is None, reason="needs g++ and ninja")
@pytest.mark.skipif(not os.environ.get("KERNELRL_LAB_BUILD"), reason="builds take a minute: set KERNELRL_LAB_BUILD=1")
@pytest.mark.parametrize("id_", FAST)
def test_a_harness_without_defences_pays_for_speed_that_is_not_there(id_: str, tmp_path: Path) -> None:
    paid = _paid(id_, tmp_path)
    assert paid["correct"] is True
    assert paid["speedup"] > 1.0
