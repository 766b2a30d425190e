"""The programs of the README print what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_testing.waiting import DEADLINE_S

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("index", range(2))
def test_a_program_prints_what_the_readme_shows(index: int) -> None:
    program, shown = PROGRAMS[index]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    if "mount_namespace" in done.stdout or "sys" in done.stdout.split("'"):
        pytest.skip("this machine does not allow namespaces")
    assert done.stdout.replace("'lib64', ", "") == shown.replace("'lib64', ", ""), done.stderr
