"""The attacks are real: a harness without defences pays for them. They run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def _paid(ids: tuple[str, ...], folder: Path) -> dict[str, dict[str, Any]]:
    """What the harness says of each fixture."""
    for id_ in ids:
        fixture = next(fixture for fixture in FIXTURES if fixture.id == id_)
        (folder / id_).mkdir()
        (folder / id_ / "reference.py").write_text(fixture.task)
        (folder / id_ / "candidate.py").write_text(fixture.candidate)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
    done = subprocess.run(
        [sys.executable, str(HARNESS), *ids],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"correct"')]
    assert len(said) == len(ids), done.stderr[-2000:]
    return dict(zip(ids, said, strict=True))


def test_a_harness_without_defences_takes_them_for_right(tmp_path: Path) -> None:
    paid = _paid(WRONG, tmp_path)
    assert {id_: said for id_, said in paid.items() if not said["correct"]} == {}
