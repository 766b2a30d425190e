"""Compare a run through Tinker's SDK and the local server with the same run in process.

    python benchmarks/tinker_local.py --steps 60

Runs the recipes `quickstart` (policy `torch`) and `tinker_local` (policy `tinker`, server on this machine) with one
seed, one after the other, from one warm start. They must agree exactly: hashes of every reply with its outcome, of all
returns and advantages, and of the final weights. If one differs, the exit code is 1. Learning curves and the seconds
per reply and per update are reported as well. Equal kernels are evaluated once: the second run finds the evaluations of
the first in the cache, so durations of whole steps are not compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from provenance import provenance

ARMS = {"in_process": "quickstart", "through_sdk": "tinker_local"}
CURVES = ("reward/mean", "kernel/correct_rate", "train/loss", "train/grad_norm", "train/kl", "train/mismatch")


def train(folder: Path, cache: Path, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Results of one run."""
    overrides = [f"seed={seed}", f"train.steps={steps}", "train.checkpoint_every=1000", "eval.samples=2"]
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "run", ARMS[arm]]
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(cache), "KERNELRL_RUN_SECRET": "5a" * 32}
    begin = time.monotonic()
    done = subprocess.run(
        [*command, "--name", arm, *overrides], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{arm} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    run = folder / "runs" / arm
    metrics = rows(run / "metrics.jsonl")
    return {
        "seconds": round(seconds, 1),
        "reply_s": round(statistics.median(row["time/sample_p50"] for row in metrics), 3),
        "update_s": round(statistics.median(row["time/train"] for row in metrics), 3),
        "curves": {name: [round(row[name], 6) for row in metrics if name in row] for name in CURVES},
        "held_out": [metrics[0]["eval_start/correct_rate"], metrics[-1]["eval/correct_rate"]],
        "replies_sha256": replies(rows(run / "samples.jsonl")),
        "advantages_sha256": advantages(rows(run / "credits.jsonl")),
        "weights_sha256": weights(run / "checkpoints"),
    }


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def replies(samples: list[dict[str, Any]]) -> str:
    """Hash over every reply and its outcome, in canonical order."""
    # Log-probabilities are excluded, because they are transferred in single precision.
    ordered = sorted((row["sample"], row["reply"]["tokens"], row["reply"]["text"], row["outcome"]) for row in samples)
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()[:16]


def advantages(batches: list[dict[str, Any]]) -> str:
    """Hash over the credit of every sample, in canonical order."""
    ordered = sorted(batches, key=lambda row: row["sample"])
    return hashlib.sha256(json.dumps(ordered, sort_keys=True).encode()).hexdigest()[:16]


def weights(checkpoints: Path) -> str:
    """Hash over the bytes of the trained weights, for either policy."""
    (newest,) = sorted(checkpoints.glob("*"))[-1:]
    path = newest / "policy.pt" if (newest / "policy.pt").exists() else newest / "state" / "weights.pt"
    content = torch.load(path, weights_only=True)
    digest = hashlib.sha256()
    for name, tensor in sorted(content.get("weights", content).items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/tinker_local.json"))
    parser.add_argument("--cache", type=Path, help="cache with the warm start; default: an empty one")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "provenance": provenance("torch", "triton", "tinker"),
        "seed": arguments.seed,
        "steps": arguments.steps,
    }
    with tempfile.TemporaryDirectory() as name:
        for arm in ARMS:
            cache = (arguments.cache or Path(name) / "cache").absolute()
            results[arm] = train(Path(name), cache, arm, arguments.seed, arguments.steps)
    here, there = (results[arm] for arm in ARMS)
    same = {name: here[f"{name}_sha256"] == there[f"{name}_sha256"] for name in ("replies", "advantages", "weights")}
    results |= {f"same_{name}": equal for name, equal in same.items()}
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    for arm in ARMS:
        row = results[arm]
        reward, correct = row["curves"]["reward/mean"], row["curves"]["kernel/correct_rate"]
        print(
            f"{arm:<12} reward {reward[0]:.3f} -> {reward[-1]:.3f}  correct {correct[0]:.3f} -> {correct[-1]:.3f}  "
            f"held out {row['held_out'][0]:.3f} -> {row['held_out'][1]:.3f}  "
            f"{row['reply_s']} s a reply, {row['update_s']} s an update"
        )
    print(", ".join(f"same {name}: {equal}" for name, equal in same.items()))
    sys.exit(not all(same.values()))


if __name__ == "__main__":
    main()
