"""Time of `kernelrl check` with a running service: wall seconds, and CPU seconds of the client.

    python benchmarks/warm_check.py [--repeats 9]

The service has one judge, at a unix socket of this user. A kernel that is not Python, one that fails while it is
loaded, and a correct kernel in Triton's interpreter are checked in turn: by the service as a whole (the command as it
is installed), and by the command that imports the plugins and sends the evaluation alone. Each check is a process of
its own, and has other inputs, so no result is from a cache.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import ROOT, provenance

TASK = "starter/2/softmax"
PROGRAMS = {
    "by the service": "from kernelrl_core.cli.entry import main; main()",
    "by the command": "from kernelrl_core.cli.main import main; main()",
}


def kernels() -> dict[str, str]:
    """Outcome -> source."""
    page = (ROOT / "docs/evaluator.md").read_text()
    blocks: list[str] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    softmax = next(block for block in blocks if "softmax_kernel" in block)
    return {
        "format_error": softmax.replace("def softmax_kernel", "deff softmax_kernel"),
        "compile_error": f"import triton.language as tl\nbad = tl.no_such_function\n{softmax}",
        "correct": softmax,
    }


def checked(program: str, outcome: str, directory: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of one check."""
    command = [sys.executable, "-c", program, "check", TASK, f"{outcome}.py", "--json"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    row = json.loads(done.stdout)
    assert (row["outcome"], row["evaluator"]) == (outcome, "http"), done.stdout
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def figures(measured: Sequence[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = zip(*measured, strict=True)
    return {
        "median": round(statistics.median(wall), 3),
        "fastest": round(min(wall), 3),
        "CPU of the client": round(statistics.median(cpu), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    facts = provenance("torch", "triton")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for outcome, source in kernels().items():
            (directory / f"{outcome}.py").write_text(source)
        environment = {**os.environ, "KERNELRL_SERVICE": f"unix:{directory}/s.sock"}
        serve = ["serve", "evaluator.workers=1", "--state", "state", f"--unix={directory}/s.sock"]
        command = [sys.executable, "-c", PROGRAMS["by the command"], *serve]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline()
                for way, program in PROGRAMS.items():
                    for outcome in kernels():
                        checked(program, outcome, directory, environment)  # the judge starts, the disk is read
                        measured = [checked(program, outcome, directory, environment) for _ in range(given.repeats)]
                        found[f"{outcome} {way}"] = figures(measured)
                        print(outcome, way, found[f"{outcome} {way}"], file=sys.stderr)
            finally:
                process.terminate()
    print(json.dumps({"repeats": given.repeats, "seconds": found, "provenance": facts}, indent=2))


if __name__ == "__main__":
    main()
