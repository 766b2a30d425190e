"""Compare a run killed with `kill -9` at 20 random moments with the same run undisturbed.

    python benchmarks/resume.py --output benchmarks/results/resume_torch.json
    python benchmarks/resume.py --policy tinker --output benchmarks/results/resume_tinker.json
    python benchmarks/resume.py --policy scripted --output benchmarks/results/resume_scripted.json

`torch` and `tinker` train a small model, `scripted` replays two replies. All use the starter tasks, evaluated in
Triton's interpreter. Each kill comes at a random time after the start of the process. The run is then resumed, until it
ends by itself. `tinker` uses the Tinker server on this machine, which the run starts and which dies with it.

Must be equal: metrics except time and cost; every reply with its tokens and log-probabilities; outcome, reward and
advantage of every sample; with policy `torch` also every byte of the checkpoints. A journalled reply must not be
sampled again. Every evaluation follows a reply, so no evaluation is repeated either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from provenance import provenance

RECIPE = """
seed: 5
tasks:     {{use: starter}}
backend:   {{use: triton}}
policy:    {policy}
evaluator: {{use: local}}
evaluation: {{timing: false, trials: 1}}
prompt:    {{template: brief}}
sampling:  {{max_tokens: {max_tokens}}}
episode:   {{turns: 2}}
history:   {{keep: {{last: 1}}}}
returns:   {{gamma: 0.4}}
advantage: {{use: per_turn}}
rewards:
  correct: {{use: correctness, weight: 1.0}}
  compile: {{use: compile, weight: 0.2}}
  format:  {{use: format, weight: 0.1}}
checkers:  {{source: {{use: source_rules}}}}
feedback:  {{use: minimal}}
train:
  tasks_per_step: 6
  group_size: 6
  steps: 4
  substeps: 2
  length_norm: max_tokens
  learning_rate: 2.0e-4
  checkpoint_every: 2
eval:      {{every: 2, samples: 1, max_tasks: 2, at_start: true}}
"""

KERNEL = """```python
import torch
import triton
import triton.language as tl

@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
```"""
REPLIES = [{"reply": "I do not know."}, {"reply": KERNEL}]

POLICIES = {
    "scripted": f"{{use: scripted, seconds_per_reply: 1, replies: {json.dumps(REPLIES)}}}",
    "torch": "{use: torch, width: 96, layers: 2, heads: 2, context_tokens: 2048, warm_start: {steps: 500}}",
    "tinker": "{use: tinker, server: local, local: {width: 96, layers: 2, heads: 2, context_tokens: 2048, "
    "warm_start_steps: 500}}",
}
OWN_OF_A_SAMPLE = ("prompt", "reply", "kernel_sha256", "outcome", "verdict", "score", "feedback", "behind")


class Place:
    """A working directory with one run and its own cache."""

    def __init__(self, path: Path, policy: str) -> None:
        self.path, self.run_dir = path, path / "runs" / "small"
        path.mkdir(parents=True)
        (path / "small.yaml").write_text(
            RECIPE.format(policy=POLICIES[policy], max_tokens=len(KERNEL) + 1 if policy == "scripted" else 200)
        )

    def start(self) -> subprocess.Popen[bytes]:
        arguments = ["resume", "small"] if self.run_dir.exists() else ["run", "small.yaml", "--name", "small"]
        environment = {
            **os.environ,
            "KERNELRL_RUN_SECRET": "5a" * 32,
            "KERNELRL_CACHE_DIR": str(self.path / "cache"),
        }
        code = "from kernelrl_core.cli.main import main; main()"
        with (self.path / "output.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, *arguments], cwd=self.path, env=environment, stdout=log, stderr=log
            )

    def finished(self) -> bool:
        state = self.run_dir / "state.json"
        return state.exists() and json.loads(state.read_text())["state"] == "finished"

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a journal, without a last one that a kill truncated."""
        path = self.run_dir / f"{name}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def results(self) -> dict[str, Any]:
        """The values that must be equal."""
        found: dict[str, Any] = {
            "metrics": [
                {key: value for key, value in row.items() if not key.startswith(("time/", "cost/"))}
                for row in self.rows("metrics")
            ]
        }
        for name in ("samples", "eval_samples"):
            rows = self.rows(name)
            found[name] = {row["sample"] + f"@{row['step']}": [row[key] for key in OWN_OF_A_SAMPLE] for row in rows}
            found[f"{name}_count"] = len(rows)
        found["credits"] = self.rows("credits")
        return found

    def weights(self) -> dict[str, str]:
        folder = self.run_dir / "checkpoints"
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def journalled(self) -> set[tuple[str, str]]:
        """Finished samples. Those lost to an infrastructure error are excluded: they are sampled again by design."""
        names = (("train", "samples"), ("eval", "eval_samples"))
        return {
            (purpose, row["sample"])
            for purpose, name in names
            for row in self.rows(name)
            if row["outcome"] != "infra_error"
        }

    def lost_samples(self) -> int:
        """Number of samples lost to an infrastructure error."""
        return sum(row["outcome"] == "infra_error" for name in ("samples", "eval_samples") for row in self.rows(name))

    def started(self) -> list[tuple[str, str]]:
        return [(row["purpose"], row["sample"]) for row in self.rows("begun")]


def measure(policy: str, kills: int, seed: int, within: float, folder: Path) -> dict[str, Any]:
    whole = Place(folder / "whole", policy)
    made = whole.start()  # with an empty cache: includes all one-time work
    if made.wait(timeout=900):
        sys.exit((whole.path / "output.txt").read_text()[-3000:])
    again = fresh(whole, folder / "again", policy)
    began = time.monotonic()
    if again.start().wait(timeout=900):
        sys.exit((again.path / "output.txt").read_text()[-3000:])
    took = time.monotonic() - began
    differing = [f"undisturbed: {part}" for part in differences(again, whole, policy)]

    moments = random.Random(seed)
    done = runs = repeated = lost = spoilt = before_any_row = 0
    while done < kills:
        place = fresh(whole, folder / f"killed{runs}", policy)
        runs += 1
        while not place.finished():
            known, earlier = place.journalled(), len(place.started())
            process = place.start()
            if done < kills:
                try:
                    process.wait(timeout=moments.uniform(0.0, within * took))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    done += 1
                    before_any_row += not place.run_dir.exists()
            else:
                process.wait(timeout=900)
            if process.returncode not in (0, -signal.SIGKILL):
                sys.exit((place.path / "output.txt").read_text()[-3000:])
            repeated += sum(where in known for where in place.started()[earlier:])
        lost += len(place.started()) - len(place.rows("samples")) - len(place.rows("eval_samples"))
        spoilt += place.lost_samples()
        differing += [f"{place.path.name}: {part}" for part in differences(place, whole, policy)]
        shutil.rmtree(place.path / "cache")
    rows = whole.rows("samples")
    return {
        "policy": policy,
        "kills": done,
        "latest_moment_in_runs": within,
        "kills_before_the_run_directory_existed": before_any_row,
        "runs": runs,
        "undisturbed_seconds": round(took, 1),
        "samples_of_a_run": len(rows) + len(whole.rows("eval_samples")),
        "judged_samples": sum(row["evaluation"] is not None for row in rows),
        "trained_steps": sum(not row["train/skipped"] for row in whole.rows("metrics")),
        "differing_runs": differing,
        "journalled_and_begun_again": repeated,
        "samples_spoilt_by_the_infrastructure": spoilt,
        "replies_under_way_that_were_lost": lost,
        "lost_per_kill": round(lost / max(done, 1), 2),
    }


def fresh(origin: Place, path: Path, policy: str) -> Place:
    """A place with the warm start of another one, and with those of its evaluations that are not deterministic.

    A kernel that accesses memory out of bounds has a random outcome. Such evaluations are kept, so that runs can be
    compared; all others are repeated.
    """
    place = Place(path, policy)
    shutil.copytree(origin.path / "cache", path / "cache", dirs_exist_ok=True)
    for entry in (path / "cache" / "verdicts").glob("*.json"):
        if json.loads(entry.read_text())["evaluation"]["outcome"] != "runtime_error":
            entry.unlink()
    return place


def differences(place: Place, whole: Place, policy: str) -> list[str]:
    """The results that differ, each with its first difference."""
    mine, theirs = place.results(), whole.results()
    if policy == "torch":
        mine["weights"], theirs["weights"] = place.weights(), whole.weights()
    found = []
    for part, value in mine.items():
        if value != theirs[part]:
            others = theirs[part]
            first = next((f"{key}: {item}" for key, item in _entries(value) if _at(others, key) != item), str(value))
            found.append(f"{part}: {first[:300]}")
    return found


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _at(values: Any, key: Any) -> Any:
    try:
        return values[key]
    except (KeyError, IndexError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="torch")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=1.0, help="latest kill, as a fraction of an undisturbed run")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    packages = ("torch", "triton", *(("tinker",) if arguments.policy == "tinker" else ()))
    head = {"provenance": provenance(*packages)}
    with tempfile.TemporaryDirectory() as folder:
        result = head | measure(arguments.policy, arguments.kills, arguments.seed, arguments.within, Path(folder))
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    if result["differing_runs"] or result["journalled_and_begun_again"]:
        sys.exit("a resumed run differs, or sampled journalled replies again")


if __name__ == "__main__":
    main()
