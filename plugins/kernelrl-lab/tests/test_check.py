"""`kernelrl plugins check` brings the lab before a plugin's evaluators."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_check_of_an_evaluator_judges_fixtures_of_the_lab(tmp_path: Path) -> None:
    code = "from kernelrl_core.cli.main import main; main()"
    checked = subprocess.run(
        [sys.executable, "-c", code, "plugins", "check", "local", "--only", "A2-triton", "--only", "K1"],
        env={**os.environ, "KERNELRL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "evaluators: local: loads" in checked.stdout
    assert "hacks detected             1 of 1" in checked.stdout
