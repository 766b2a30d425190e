"""Compare KernelBench's own analysis of an export with the figures of this repository, digit by digit.

    python benchmarks/kernelbench_analysis.py --kernelbench CLONE [--python PYTHON] [--seeds 20] [--measure]

CLONE defaults to `KERNELBENCH_ROOT`. PYTHON is an interpreter with KernelBench's dependencies, in which its
`scripts/benchmark_eval_analysis.py` runs unchanged.

For each seed and for levels 1 to 3, every task of the level gets a kernel with a random outcome and random run times,
suspects included. The evaluation is written as by `kernelrl eval --output`, and exported with `kernelrl export --as
kernelbench`. With `--measure`, level 1 is also evaluated on the CPU of this machine by `kernelrl eval --kernels`, with
C++ kernels for eleven tasks, whose inputs are made smaller, and kernels that do not load for the others.

Compared are the printed rates of compiled and correct kernels, the geometric mean of speedups and fast_p, as measured.
A difference makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

from kernelrl_core.heldout.scoreboard import scoreboard
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.recipe.structure import component_block
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.types import BuildStatus, Episode, Group, Outcome, SampleId, Task, Verdict
from kernelrl_core.types.numbers import NonNegativeFloat
from kernelrl_testing.values import make_evaluation, make_runtime, make_turn

RESULT = Path(__file__).parent / "results" / "kernelbench_analysis.json"
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Those of KernelBench's analysis."""
SETTINGS = EvalSettings(fast_thresholds=tuple(map(NonNegativeFloat, THRESHOLDS)))

OUTCOMES = [Outcome.CORRECT] * 5 + [Outcome.INCORRECT, Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR, Outcome.HACKED]
OUTCOMES += [Outcome.FORMAT_ERROR, Outcome.REJECTED]

ELEMENTWISE = {
    19: "v > 0 ? v : 0",
    20: "v > 0 ? v : 0.01f * v",
    21: "1 / (1 + std::exp(-v))",
    22: "std::tanh(v)",
    25: "v / (1 + std::exp(-v))",
    27: "v > 0 ? v : std::exp(v)",  # wrong
    28: "std::fmin(std::fmax(v / 6 + 0.5f, 0.0f), 1.0f)",
    29: "v > 20 ? v : std::log1p(std::exp(v))",
    30: "v / (1 + std::fabs(v))",
    31: "v > 0 ? v : std::expm1(v)",
    32: "std::fmin(std::fmax(v, -1.0f), 1.0f",  # does not compile
}
"""Number of a task of level 1 -> its function of one element."""
KERNEL = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor mapped(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    const float* a = x.data_ptr<float>();
    float* b = out.data_ptr<float>();
    const int64_t n = x.numel();
    #pragma omp parallel for simd
    for (int64_t i = 0; i < n; ++i) {{
        const float v = a[i];
        b[i] = {function};
    }}
    return out;
}}
"""

module = load_inline(name="mapped", cpp_sources=cpp_source, functions=["mapped"])


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return module.mapped(x)
'''
UNWRITTEN = "raise NotImplementedError('no kernel')\n\n\nclass ModelNew:\n    pass\n"
RECIPE = """\
tasks: {{use: kernelbench, root: {root}, levels: [1], holdout: none}}
backend: {{use: cpp}}
policy: {{use: torch, warm_start: null}}
evaluator: {{use: local}}
feedback: {{use: minimal}}
forbid: []
rewards: {{correct: {{use: correctness}}}}
evaluation: {{timing: true, timing_trials: 8, trials: 2}}
train: {{tasks_per_step: 1, group_size: 2, steps: 1}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, default=os.environ.get("KERNELBENCH_ROOT"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if arguments.kernelbench is None:
        parser.error("name a clone of KernelBench: --kernelbench CLONE, or KERNELBENCH_ROOT")
    clone = arguments.kernelbench.resolve()
    found: dict[str, Any] = {"provenance": provenance(), "kernelbench": revision(clone)}
    compared, differences = 0, []
    with tempfile.TemporaryDirectory() as scratch:
        for level in (1, 2, 3):
            options = {"use": "kernelbench", "root": str(clone), "levels": [level], "holdout": "none"}
            tasks = registry().make("tasks", component_block("tasks", options, registry())).tasks("train")
            for seed in range(arguments.seeds):
                path = Path(scratch) / f"level{level}_seed{seed}.json"
                ours = simulate(tasks, seed, path)
                theirs, _ = analyse(path, level, clone, arguments.python)
                compared += 1
                differences += [
                    {"level": level, "seed": seed, "figure": key, "ours": ours[key], "theirs": theirs.get(key)}
                    for key in ours
                    if ours[key] != theirs.get(key)
                ]
        found["simulated"] = {"evaluations": compared, "figures_each": len(ours), "differences": differences}
        if arguments.measure:
            found["measured"] = measure(clone, arguments.python, Path(scratch))
            differences += found["measured"]["differences"]
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    sys.exit(bool(differences))


def simulate(tasks: list[Task], seed: int, path: Path) -> dict[str, str]:
    """Write an evaluation with random outcomes, one sample per task, and return its figures as they are printed."""
    draw = random.Random(seed)
    groups, rows = [], []
    for index, task in enumerate(tasks):
        outcome = draw.choice(OUTCOMES)
        fields: dict[str, Any] = {}
        if outcome is Outcome.CORRECT:
            baseline, runtime = (make_runtime(draw.lognormvariate(8.0, 2.0)) for _ in range(2))
            # Close to 1 or far from it, so that thresholds and long products are both tested.
            runtime = make_runtime(baseline.median_us / draw.choice([1.0, draw.lognormvariate(0.1, 0.6), 100.0]))
            speedup = baseline.median_us / runtime.median_us
            fields["evaluation"] = make_evaluation(outcome, runtime=runtime, baseline=baseline, speedup=speedup)
            fields["verdict"] = Verdict.SUSPECT if draw.random() < 0.2 else Verdict.CLEAN
        elif outcome in (Outcome.INCORRECT, Outcome.RUNTIME_ERROR, Outcome.HACKED):
            build = BuildStatus.BUILT if draw.random() < 0.9 else BuildStatus.FAILED
            fields["evaluation"] = make_evaluation(outcome, build=build)
        turn = make_turn(outcome, id=SampleId(0, index, 0, 0), task=task, **fields)
        groups.append(Group(task, (Episode((turn,)),)))
        rows.append(sample_row(turn))
    path.write_text(json.dumps({**scoreboard(groups, SETTINGS), "rows": rows}))
    return printed(json.loads(path.read_text()))


def printed(report: dict[str, Any]) -> dict[str, str]:
    """The figures of an evaluation in the format in which KernelBench prints them."""
    fast = {p: report["fast_0" if p == 0 else f"fast_{p:g}_as_measured"] for p in THRESHOLDS}
    return {
        "Compilation rate": f"{report['compile_rate'] * 100:.1f}",
        "Correctness rate": f"{report['correct_rate'] * 100:.1f}",
        "Geometric mean": f"{report['geometric_mean_speedup_as_measured']:.4f}",
        **{f"fast_{p:g}": f"{value:g}" for p, value in fast.items()},
    }


def analyse(result: Path, level: int, clone: Path, python: str) -> tuple[dict[str, str], str]:
    """The figures that KernelBench's analysis prints for the export of a result, and its whole output."""
    export = result.with_suffix("")
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "export", str(result)]
    subprocess.run([*command, "--as", "kernelbench", "--output", str(export)], check=True, capture_output=True)
    script = [python, "scripts/benchmark_eval_analysis.py", f"run_name={export.name}", f"level={level}"]
    files = [f"baseline_file={export}/baseline.json", f"eval_results_dir={export.parent}"]
    environment = {**os.environ, "PYTHONPATH": str(clone / "src"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*script, "hardware=this", "baseline=eager", *files], cwd=clone, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"KernelBench's analysis failed:\n{done.stderr}")
    text = done.stdout
    found = {
        "Compilation rate": re.search(r"Compilation rate: ([\d.]+)%", text),
        "Correctness rate": re.search(r"Correctness rate: ([\d.]+)%", text),
        "Geometric mean": re.search(r"correct samples: ([\d.]+|nan)", text),
    }
    figures = {key: match[1] for key, match in found.items() if match}
    for p, value in re.findall(r"^\|\s*([\d.]+)\s*\|\s*([\d.]+)\s*\|$", text, re.MULTILINE):
        figures[f"fast_{float(p):g}"] = f"{float(value):g}"
    return figures, text


def measure(clone: Path, python: str, scratch: Path) -> dict[str, Any]:
    """Evaluate kernels of level 1 on this machine's CPU, and compare."""
    recipe, kernels, result = scratch / "recipe.yaml", scratch / "kernels", scratch / "measured.json"
    recipe.write_text(RECIPE.format(root=smaller_tasks(clone, scratch / "tasks")))
    kernels.mkdir()
    for number in range(1, 101):
        function = ELEMENTWISE.get(number)
        source = UNWRITTEN if function is None else KERNEL.format(function=function)
        (kernels / f"level_1_problem_{number}_sample_0_kernel.py").write_text(source)
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "eval", str(recipe)]
    thresholds = f"eval.fast_thresholds=[{','.join(map(str, THRESHOLDS))}]"
    subprocess.run([*command, "--kernels", str(kernels), "--output", str(result), thresholds], check=True)
    report = json.loads(result.read_text())
    ours = printed(report)
    theirs, text = analyse(result, 1, clone, python)
    correct = [row for row in report["rows"] if row["outcome"] == "correct"]
    runtimes = json.loads((result.with_suffix("") / "eval_results.json").read_text())
    apart = [
        abs(one["runtime"] / one["runtime_stats"]["mean"] - 1)
        for samples in runtimes.values()
        for one in samples
        if one["runtime_stats"]
    ]
    return {
        "ours": ours,
        "theirs": theirs,
        "differences": [
            {"figure": key, "ours": ours[key], "theirs": theirs.get(key)}
            for key in ours
            if ours[key] != theirs.get(key)
        ],
        "speedups": {row["task_name"]: round(row["speedup"], 3) for row in correct},
        "outcomes": report["outcomes"],
        "runtime_from_speedup_differs_by_at_most": max(apart, default=None),
        "median_difference": statistics.median(apart) if apart else None,
        "analysis": text.splitlines(),
    }


def smaller_tasks(clone: Path, root: Path) -> Path:
    """A copy of level 1 in which the inputs of the elementwise tasks, of 6 GB, have 1 MB."""
    (root / "level1").mkdir(parents=True)
    for path in (clone / "KernelBench/level1").glob("*.py"):
        text = path.read_text()
        if int(path.name.partition("_")[0]) in ELEMENTWISE:
            text = text.replace("batch_size = 4096", "batch_size = 128").replace("dim = 393216", "dim = 2048")
        (root / "level1" / path.name).write_text(text)
    return root


def revision(clone: Path) -> str:
    done = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "none"


if __name__ == "__main__":
    main()
