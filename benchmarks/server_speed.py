"""Seconds per step and tokens per second: policy `tinker` at a running server, beside policy `torch` on one GPU.

    python benchmarks/server_speed.py --model DIR --base-url http://127.0.0.1:8000 --folder DIR --output FILE.json

The server has the model of DIR, as in the tutorial of SkyRL. Both policies make the same few steps of the recipe
`smollm2_gpu` without warm start and held-out tasks, one after the other, with the evaluator on one GPU. Every
reply is trained on. Replies are short, and gradients wait for the last of them, so that a server that compiles for
each length does it once. Means are without the first step. A call that was cut off continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import provenance
from slices import Job, run_slice

from kernelrl_core.runs.directory import RunDir

RECIPE = "smollm2_gpu"
CONTEXT_TOKENS = 2048
RANK = 16
OVERRIDES = (
    "sampling.max_tokens=384",
    "verify={train: 0.0, eval: 0.0}",
    "train.drop_uniform_groups=false",
    "train.stream=false",
    "eval.at_start=false",
    "eval.at_end=false",
)


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """The runs `torch` and `tinker`."""
    given = {override.partition("=")[0] for override in options.set}
    ours = [override for override in OVERRIDES if override.partition("=")[0] not in given]
    shared = (*ours, f"train.steps={options.steps}", *options.set)
    adapters = f"model: {options.model}, context_tokens: {CONTEXT_TOKENS}, lora_rank: {RANK}"
    tinker = f"policy={{use: tinker, base_url: '{options.base_url}', {adapters}}}"
    local = (f"policy.model={options.model}", "policy.warm_start=null", *options.set_torch)
    return [Job("torch", RECIPE, (*shared, *local)), Job("tinker", RECIPE, (*shared, tinker))]


def step(row: dict[str, Any]) -> dict[str, float]:
    """Figures of one step. Sampling ends with the last reply; learning includes the transfer of the new weights."""
    replies, prompts = row["tokens/reply"], row["tokens/prompt"]
    sampling_s, learning_s = row["time/sample_max"], row["time/train"]
    return {
        "seconds": row["time/total"],
        "sampling_s": sampling_s,
        "learning_s": learning_s,
        "sampled_tokens_per_second": replies / max(sampling_s, 1e-9),
        "trained_tokens_per_second": (prompts + replies) / max(learning_s, 1e-9),
    }


def figures(run: RunDir) -> dict[str, Any]:
    """Figures of a run's finished steps."""
    steps = [step(row) for row in run.rows("metrics")] if run.journal_path("metrics").exists() else []
    later = steps[1:]
    means = {name: round(statistics.fmean(one[name] for one in later), 2) for name in later[0]} if later else {}
    first = {"first_step_s": round(steps[0]["seconds"], 2)} if steps else {}
    return {"steps": len(steps), **first, **means}


def gpus() -> list[str]:
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    except (OSError, subprocess.CalledProcessError):
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="directory of the model")
    parser.add_argument("--base-url", required=True, help="address of the server")
    parser.add_argument("--server", default="SkyRL 0.4", help="name and version of the server, for the provenance")
    parser.add_argument("--server-gpus", type=int, help="number of GPUs of the server; all of this machine by default")
    parser.add_argument("--folder", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--gpu", default="0", help="id of the GPU of policy torch and of the evaluator")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--budget-s", type=float, default=540.0, help="maximum seconds of both runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for both")
    parser.add_argument("--set-torch", action="append", default=[], metavar="KEY=VALUE", help="override for `torch`")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.model = options.model.resolve()
    found = gpus()
    origin = {
        **provenance("torch", "triton", "transformers", "tinker", "jax"),
        "gpus": found,
        "server": options.server,
        "server_gpus": options.server_gpus or len(found),
    }
    code = run_slice(options.folder, jobs_of(options), options.budget_s, (options.gpu,))
    rows = {name: figures(RunDir(options.folder / "runs" / name)) for name in ("torch", "tinker")}
    options.output.write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main())
