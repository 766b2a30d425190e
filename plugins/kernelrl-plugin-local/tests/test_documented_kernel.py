"""The kernel that `docs/evaluator.md` follows has the documented output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs/evaluator.md").read_text(encoding="utf-8")
SOURCE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
OUTPUT = dict(re.findall(r"```console\n\$ kernelrl check starter/2/softmax (\S+) --seed 0\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize(
    ("name", "source"),
    [("softmax.py", SOURCE), ("unsafe.py", SOURCE.replace("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"))],
)
def test_the_documented_kernel_has_the_documented_output(name: str, source: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(source)
    command = ["check", "starter/2/softmax", name, "--seed", "0", "backend.mode=interpreter"]
    printed = subprocess.run(
        [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *command],
        cwd=tmp_path,
        env={**os.environ, "KERNELRL_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    # The layers of the sandbox depend on the machine, and the family that fails first on torch's random numbers.
    documented = [line.strip().partition(", family")[0] for line in OUTPUT[name].splitlines()]
    missing = [line for line in documented if line not in printed and not line.startswith(("sandbox", "…"))]
    assert missing == [], printed
