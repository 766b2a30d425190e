"""Start time of the command line, compared with the import of its necessary dependencies.

    python benchmarks/startup.py

Prints one JSON document: medians of alternating executions in milliseconds, their ratio, and the machine.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from provenance import provenance

RUNS = 15
TARGET_RATIO = 2.5


def main() -> None:
    program = shutil.which("kernelrl", path=str(Path(sys.executable).parent)) or shutil.which("kernelrl")
    if program is None:
        sys.exit("the program kernelrl is not installed in this environment")
    begun = provenance("click", "rich", "pyyaml", "attrs", "pluggy")
    commands = {
        "baseline": [sys.executable, "-c", "import click, rich.table, yaml, attrs"],
        "help": [program, "--help"],
        "plugins_list": [program, "plugins", "list"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
    # The first repetition fills the file cache and is excluded.
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    ratios = {name: medians[name] / medians["baseline"] for name in commands if name != "baseline"}
    result = {
        "benchmark": "startup",
        "median_ms": {name: round(value * 1e3, 1) for name, value in medians.items()},
        "ratio": {name: round(value, 2) for name, value in ratios.items()},
        "target_ratio": TARGET_RATIO,
        "reached": max(ratios.values()) <= TARGET_RATIO,
        "runs": RUNS,
        "provenance": begun,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
