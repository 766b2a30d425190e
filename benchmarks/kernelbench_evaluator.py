"""KernelBench's evaluator as a program for `kernelrl lab --command`.

    python benchmarks/kernelbench_evaluator.py --kernelbench CLONE --backend BACKEND TASK KERNEL

Prints one JSON object with `correct`, `speedup` and `verdict`: `suspect` where KernelBench flags an excessive speedup.
KernelBench's `eval_kernel_against_ref` executes candidates in its own process, so it has a process of its own here, and
a kernel that prints a result forges none. Needs a GPU, and the modules that KernelBench imports, except those for
models. The whole suites, on a machine with nothing to lose:

    kernelrl lab --gpu --jobs 4 --command \\
        'python benchmarks/kernelbench_evaluator.py --kernelbench CLONE --backend {backend} {task} {kernel}'
    kernelrl lab --gpu --jobs 4 --suite honest --command (the same)

Several jobs disturb the measured times; one is slower and exact.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from corpora.kernelbench_stand_ins import STAND_INS

__all__ = ["evaluate"]

_TRIALS = 5
_TIMED = 30
_LIMIT_S = 180.0

_THEIRS = (
    STAND_INS
    + """
import os
clone, task, kernel, backend, trials, timed, mark = sys.argv[1:]
sys.path.insert(0, clone)
import torch
from kernelbench.eval import eval_kernel_against_ref
found = eval_kernel_against_ref(
    open(task).read(), open(kernel).read(), num_correct_trials=int(trials), num_perf_trials=int(timed),
    measure_performance=True, build_dir=os.path.abspath("build"), device=torch.device("cuda:0"), backend=backend)
if found is None:
    raise SystemExit("KernelBench returned nothing and wants a retry")
speed = found.ref_runtime / found.runtime if found.correctness and found.runtime > 0 else None
said = {key: str(value)[:300] for key, value in found.metadata.items() if "traceback" not in key}
print("\\n" + mark + json.dumps({
    "compiled": found.compiled, "correct": found.correctness, "speedup": speed,
    "flagged": bool(found.metadata.get("excessive_speedup")), "metadata": said}), flush=True)
"""
)


def evaluate(
    clone: Path, task: Path, kernel: Path, *, backend: str = "triton", trials: int = _TRIALS, limit_s: float = _LIMIT_S
) -> dict[str, Any]:
    """KernelBench's result: `compiled`, `correct`, `speedup`, `flagged`, `metadata`; or `error`."""
    mark = f"{secrets.token_hex(8)} "
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        command = [
            *(sys.executable, "-c", _THEIRS, str(clone.resolve() / "src"), str(task.resolve()), str(kernel.resolve())),
            *(backend, str(trials), str(_TIMED), mark),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not finished within {limit_s:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(mark):
            found: dict[str, Any] = json.loads(line.removeprefix(mark))
            return found
    return {"error": (done.stderr or done.stdout)[-600:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("kernel", type=Path)
    parser.add_argument("--kernelbench", type=Path, required=True, help="a local clone of KernelBench")
    parser.add_argument("--backend", default="triton", help="a backend of KernelBench: triton, cuda, hip, …")
    parser.add_argument("--trials", type=int, default=_TRIALS, help="correctness trials")
    given = parser.parse_args()
    found = evaluate(given.kernelbench, given.task, given.kernel, backend=given.backend, trials=given.trials)
    if "error" in found:
        sys.exit(found["error"])
    message = next((value for key, value in found["metadata"].items() if key.endswith(("error", "issue"))), "")
    verdict = "suspect" if found["flagged"] else "clean"
    print(json.dumps({key: found[key] for key in ("correct", "speedup")} | {"verdict": verdict, "message": message}))


if __name__ == "__main__":
    main()
