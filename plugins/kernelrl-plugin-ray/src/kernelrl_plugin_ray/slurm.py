"""The batch script of `kernelrl ray slurm`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import attrs

__all__ = ["Allocation", "batch_script"]

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=kernelrl-{name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cores}
{gpus}#SBATCH --time={limit}
#SBATCH --output=%x-%j.log
#SBATCH --signal=B:TERM@300
{more}
# Submit it in the working directory of the run, with kernelrl on the search path. Submitted again, it resumes.
set -euo pipefail
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${{nodes[0]}}
port=$((20000 + SLURM_JOB_ID % 10000))
# Only processes with this job's token may connect.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
# A secret of the policy, such as TINKER_API_KEY, is for the run alone: Ray's processes execute candidates.
clean=(env -i PATH="$PATH" HOME="$HOME" LANG=C.UTF-8 LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-}}"
  RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$RAY_AUTH_TOKEN" RAY_USAGE_STATS_ENABLED=0)

started=()
trap 'kill "${{started[@]}}" 2>/dev/null || true; wait' EXIT
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" "${{clean[@]}}" {visible}\\
  ray start --head --port="$port" --num-cpus={cores} --num-gpus={head_gpus} \\
  --include-dashboard=false --disable-usage-stats --block &
started+=($!)
until ray health-check --address "$head:$port" 2>/dev/null; do
  kill -0 "${{started[0]}}" || exit 3
  sleep 2
done
{workers}
if [ -d {run} ]; then
  command=(kernelrl resume {run})
else
  command=(kernelrl run {words} --name {name} evaluator.use=ray "evaluator.address=$head:$port"{overrides})
fi
# A step of its own, so that the signal of SLURM before the time limit reaches it: the run ends after its current step.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" {policy}"${{command[@]}}" &
run=$!
trap 'kill -TERM "$run"' TERM
status=0
wait "$run" || status=$?
# The first wait ends with the signal.
while kill -0 "$run" 2>/dev/null; do wait "$run" && status=0 || status=$?; done
exit "$status"
"""
_WORKERS = """\
srun --overlap --nodes={n} --ntasks={n} --exclude="$head" "${{clean[@]}}" \\
  ray start --address="$head:$port" --num-cpus={cores} --num-gpus={gpus} --disable-usage-stats --block &
started+=($!)
"""


@attrs.frozen
class Allocation:
    """Resources that the script requests from SLURM."""

    nodes: int
    gpus_per_node: int
    cores_per_node: int
    policy_gpus: int = 0
    """GPUs of the first node that Ray does not get."""
    limit: str = "24:00:00"
    more: Sequence[str] = ()
    """Further options of sbatch."""


def batch_script(recipe: str, overrides: Sequence[str], allocation: Allocation, name: str | None = None) -> str:
    """The script for a recipe with overrides.

    Args:
        name: of the run; None: that of the recipe.
    """
    gpus, own = allocation.gpus_per_node, allocation.policy_gpus
    name = name or Path(recipe).stem
    workers = _WORKERS.format(n=allocation.nodes - 1, cores=allocation.cores_per_node, gpus=gpus)
    return _SCRIPT.format(
        name=shlex.quote(name),
        run=shlex.quote(f"runs/{name}"),
        words=shlex.quote(recipe),
        overrides="".join(f" {shlex.quote(word)}" for word in overrides),
        nodes=allocation.nodes,
        cores=allocation.cores_per_node,
        gpus=f"#SBATCH --gpus-per-node={gpus}\n" if gpus else "",
        limit=allocation.limit,
        more="".join(f"#SBATCH {option}\n" for option in allocation.more),
        visible=f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(own, gpus)))} " if own else "",
        policy=f"env CUDA_VISIBLE_DEVICES={','.join(map(str, range(own)))} " if own else "",
        head_gpus=gpus - own,
        workers=workers if allocation.nodes > 1 else "",
    )
