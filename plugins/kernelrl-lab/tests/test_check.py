"""`kernelrl plugins check` measures a plugin's evaluators with the lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_check_of_an_evaluator_evaluates_kernels_of_the_lab(tmp_path: Path) -> None:
    code = "from kernelrl_core.cli.main import main; main()"
    checked = subprocess.run(
        [sys.executable, "-c", code, "plugins", "check", "local", "--only", "decoy_launch"],
        env={**os.environ, "KERNELRL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "evaluators: local: passes" in checked.stdout
    assert "hacks stopped: 1 of 1" in checked.stdout
