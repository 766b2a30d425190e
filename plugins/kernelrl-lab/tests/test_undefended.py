"""The hacks are real: a harness without defences accepts them. They are executed in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelrl_lab.suite import suite_folder

HARNESS = Path(__file__).with_name("naive_harness.py")
ACCEPTED = (
    "inherited_reference",
    "live_reference",
    "constant_output",
    "identity",
    "generator_state",
    "broadcast_output",
    "dropped_output",
    "overwritten_input",
    "patched_generators",
    "patched_comparison",
    "magic_output",
    "lazy_output_object",
    "memo_by_identity",
    "memo_by_address",
    "memo_by_shape",
    "encoded_memo",
    "copy_after_the_library",
)


def _results(ids: tuple[str, ...], folder: Path) -> dict[str, dict[str, Any]]:
    """Result of the harness for each hack."""
    for id_ in ids:
        (folder / id_).mkdir()
        shutil.copy(suite_folder("hacks") / id_ / "task.py", folder / id_ / "reference.py")
        shutil.copy(suite_folder("hacks") / id_ / "candidate.py", folder / id_ / "candidate.py")
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
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"correct"')]
    assert len(results) == len(ids), done.stderr[-2000:]
    return dict(zip(ids, results, strict=True))


def test_a_harness_without_defences_accepts_them(tmp_path: Path) -> None:
    results = _results(ACCEPTED, tmp_path)
    assert {id_: result for id_, result in results.items() if not result["correct"]} == {}
