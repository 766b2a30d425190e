"""The batch script for SLURM: its text, and its commands on one machine with substitutes of SLURM's programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelrl_plugin_ray.command import command
from kernelrl_plugin_ray.slurm import Allocation, batch_script
from kernelrl_testing.waiting import DEADLINE_S

SRUN = """\
#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = '#!/bin/bash\nprintf "%s\\n%s\\n" "$(hostname)" other\n'


def printed(*words: str) -> str:
    done = CliRunner().invoke(command, ["slurm", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_script_requests_the_allocation_and_is_bash(tmp_path: Path) -> None:
    script = printed("kevin", "train.steps=3", "--nodes", "4", "--gpus-per-node", "8", "--sbatch=--partition=gpu big")
    for line in (
        "#SBATCH --nodes=4",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --cpus-per-task=64",
        "#SBATCH --partition=gpu big",
    ):
        assert line in script.splitlines()
    assert "srun --overlap --nodes=3 --ntasks=3 " in script
    assert 'kernelrl run kevin --name kevin evaluator.use=ray "evaluator.address=$head:$port" train.steps=3' in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_one_node_has_no_further_workers() -> None:
    assert "--exclude" not in batch_script("kevin", (), Allocation(1, 8, 64))


def test_gpus_of_the_policy_are_not_those_of_ray() -> None:
    script = printed("kevin", "--gpus-per-node", "4", "--policy-gpus", "1")
    assert '"${clean[@]}" CUDA_VISIBLE_DEVICES=1,2,3 ' in script
    assert "--num-gpus=3" in script
    assert 'env CUDA_VISIBLE_DEVICES=0 "${command[@]}"' in script


@pytest.mark.parametrize("words", [("--policy-gpus", "8"), ("--nodes", "2", "--policy-gpus", "9")])
def test_a_policy_that_takes_every_gpu_is_refused(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, ["slurm", "kevin", *words])
    assert "leaves no GPU to the evaluator" in str(done.exception)


@pytest.mark.parametrize("word", ["a b", "it's", "$(touch here)", "[1, 2]"])
def test_overrides_reach_the_run_as_they_are(tmp_path: Path, word: str) -> None:
    script = batch_script("kevin", (f"x={word}",), Allocation(1, 0, 2))
    line = next(line for line in script.splitlines() if "kernelrl run" in line).strip().removesuffix(")")
    line = line.removeprefix("command=(")
    shown = subprocess.run(
        ["bash", "-c", f'printf "%s\\n" {line}'], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert shown.stdout.splitlines()[-1] == f"x={word}"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_commands_of_the_script_make_a_run_on_one_machine(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(printed("smoke", "train.steps=1", "--nodes", "2", "--gpus-per-node", "0", "--cpus-per-node", "1"))
    environment = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "this[1-2]",
        "TINKER_API_KEY": "planted",
    }
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, timeout=3 * DEADLINE_S, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs/smoke/samples.jsonl").read_text().splitlines()]
    assert rows
    assert {row["evaluation"]["provenance"]["node"] for row in rows if row["evaluation"]} == {os.uname().nodename}
    assert "infra_error" not in {row["outcome"] for row in rows}
