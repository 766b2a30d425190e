"""The kernels of `docs/evaluator.md` and of the tutorial on tasks have the documented output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
EVALUATOR = (DOCS / "evaluator.md").read_text(encoding="utf-8")
SOFTMAX = re.findall(r"```python\n(.*?)```", EVALUATOR, re.DOTALL)[0]
TUTORIAL = (DOCS / "tutorials/own_tasks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", TUTORIAL, re.DOTALL))


@pytest.mark.parametrize(
    ("page", "command", "files"),
    [
        (EVALUATOR, "starter/2/softmax softmax.py --seed 0", {"softmax.py": SOFTMAX}),
        (
            EVALUATOR,
            "starter/2/softmax unsafe.py --seed 0",
            {"unsafe.py": SOFTMAX.replace("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)")},
        ),
        (TUTORIAL, "my_tasks/level1/relu.py relu_triton.py", FILES),
    ],
    ids=["softmax", "unsafe", "tutorial"],
)
def test_a_documented_kernel_has_the_documented_output(
    page: str, command: str, files: dict[str, str], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    printed = subprocess.run(
        [
            *(sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "check"),
            *command.split(),
            "backend.mode=interpreter",
        ],
        cwd=tmp_path,
        env={**os.environ, "KERNELRL_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    (output,) = re.findall(rf"```console\n\$ kernelrl check {re.escape(command)}\n(.*?)```", page, re.DOTALL)
    # The layers of the sandbox depend on the machine, and the family that fails first on torch's random numbers.
    documented = [line.strip().partition(", family")[0] for line in output.splitlines()]
    missing = [line for line in documented if line not in printed and not line.startswith(("sandbox", "…"))]
    assert missing == [], printed
