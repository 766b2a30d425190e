"""`kernelrl ray`."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.group("ray")
def command() -> None:
    """Write batch scripts for evaluator ray.

    \b
    Examples:
      kernelrl ray slurm kevin --nodes 4 --gpus-per-node 8
    """


@command.command("slurm")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes of the allocation.")
@click.option("--gpus-per-node", type=click.IntRange(0), default=8, show_default=True, help="GPUs of each node.")
@click.option("--cpus-per-node", type=click.IntRange(1), help="Cores of each node. Default: 8 per GPU, or 8.")
@click.option("--policy-gpus", type=click.IntRange(0), default=0, show_default=True,
              help="GPUs of the first node for the policy; the others evaluate.")  # fmt: skip
@click.option("--time", "limit", default="24:00:00", show_default=True, help="Time limit of SLURM.")
@click.option("--name", help="Name of the run. Default: that of the recipe.")
@click.option("--sbatch", "more", multiple=True, metavar="OPTION", help="Further option of sbatch. Repeatable.")
def slurm(
    recipe: str,
    overrides: tuple[str, ...],
    nodes: int,
    gpus_per_node: int,
    cpus_per_node: int | None,
    policy_gpus: int,
    limit: str,
    name: str | None,
    more: tuple[str, ...],
) -> None:
    """Print a batch script that starts Ray on an allocation, and the run on its first node.

    The script resumes the run if its directory exists, so a job that reached its time limit is submitted again.

    \b
    Examples:
      kernelrl ray slurm kevin --nodes 4 --gpus-per-node 8 --sbatch=--partition=gpu > job.sh && sbatch job.sh
      kernelrl ray slurm kevin_tinker --nodes 2 --gpus-per-node 4 evaluator.gpu_workers=4
    """
    from kernelrl_core.api.errors import UsageError
    from kernelrl_plugin_ray.slurm import Allocation, batch_script

    if policy_gpus >= max(1, gpus_per_node * nodes) or policy_gpus > gpus_per_node:
        raise UsageError(
            f"--policy-gpus {policy_gpus} leaves no GPU to the evaluator",
            fix="raise --gpus-per-node or --nodes",
            see="arguments",
        )
    cores = cpus_per_node or 8 * max(1, gpus_per_node)
    click.echo(
        batch_script(recipe, overrides, Allocation(nodes, gpus_per_node, cores, policy_gpus, limit, more), name),
        nl=False,
    )
