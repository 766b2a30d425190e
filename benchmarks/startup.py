"""Start time of the command line, compared with the import of its necessary dependencies.

    python benchmarks/startup.py

Commands that evaluate nothing are compared with the import of the command line's dependencies. `kernelrl check`, which
starts judge, nursery, zygote and runner for one kernel in Triton's interpreter, is compared with the import of torch
and Triton. Prints one JSON document: medians of alternating executions in milliseconds, their ratios, and the machine.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import provenance

from kernelrl_core.api.config import gpu_vendors

RUNS = 15
CHECKS = 9
TARGET_RATIO = 2.5
TARGET_CHECK_RATIO = 1.6
KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    x = tl.load(x_ptr + row * n_columns + columns, mask=mask, other=-float("inf"))
    shifted = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_columns + columns, shifted / tl.sum(shifted, axis=0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def medians_s(commands: dict[str, list[str]], runs: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
    # The first repetition fills the file cache and is excluded.
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def main() -> None:
    program = shutil.which("kernelrl", path=str(Path(sys.executable).parent)) or shutil.which("kernelrl")
    if program is None:
        sys.exit("the program kernelrl is not installed in this environment")
    machine = provenance("click", "rich", "pyyaml", "attrs", "pluggy", "torch", "triton")
    medians = medians_s(
        {
            "baseline": [sys.executable, "-c", "import click, rich.table, yaml, attrs"],
            "help": [program, "--help"],
            "plugins_list": [program, "plugins", "list"],
        },
        RUNS,
    )
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "softmax.py")
        kernel.write_text(KERNEL)
        interpreter = ["backend.mode=interpreter"] if gpu_vendors() else []
        medians |= medians_s(
            {
                "torch_baseline": [sys.executable, "-c", "import torch, triton"],
                "check": [program, "check", "starter/2/softmax", str(kernel), "--backend", "triton", *interpreter],
            },
            CHECKS,
        )
    ratios = {name: medians[name] / medians["baseline"] for name in ("help", "plugins_list")}
    check_ratio = medians["check"] / medians["torch_baseline"]
    result = {
        "benchmark": "startup",
        "median_ms": {name: round(value * 1e3, 1) for name, value in medians.items()},
        "ratio": {**{name: round(value, 2) for name, value in ratios.items()}, "check": round(check_ratio, 2)},
        "target_ratio": {"help": TARGET_RATIO, "plugins_list": TARGET_RATIO, "check": TARGET_CHECK_RATIO},
        "reached": max(ratios.values()) <= TARGET_RATIO and check_ratio <= TARGET_CHECK_RATIO,
        "runs": {"help": RUNS, "plugins_list": RUNS, "check": CHECKS},
        "provenance": machine,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
