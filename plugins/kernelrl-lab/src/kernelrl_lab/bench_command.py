"""`kernelrl bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kernelrl_lab.bench import Measured

__all__ = ["command"]


@click.group("bench")
def command() -> None:
    """Measure a component.

    \b
    Examples:
      kernelrl bench evaluator ray --against local
    """


@command.command("evaluator")
@click.argument("name")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--against", metavar="NAME", help="Compare outcome and verdict of each kernel with this evaluator.")
@click.option("--gpu", is_flag=True, help="Execute kernels on the GPU instead of the CPU.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs.")
@click.option("--only", multiple=True, metavar="ID", help="Kernel or task. May be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def evaluator(
    context: click.Context,
    name: str,
    overrides: tuple[str, ...],
    against: str | None,
    gpu: bool,
    seed: int,
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure an evaluator on the lab's honest kernels and 30 of its hacks.

    Prints start time, throughput, latency and use of the capacity; with --against, also the share of kernels with equal
    outcome and verdict, and the others by name. KEY=VALUE override evaluation keys; those of the evaluator are for NAME
    alone.

    Exit code 0: all agree; 1: a kernel does not, or was lost to an infrastructure error.

    \b
    Examples:
      kernelrl bench evaluator local evaluator.workers=2
      kernelrl bench evaluator ray evaluator.address=gpu-box:6379 --gpu
      kernelrl bench evaluator ray --against local --json
    """
    import asyncio

    from kernelrl_core.api.episodes import registry
    from kernelrl_core.api.errors import LookupFailed, suggestion
    from kernelrl_lab.bench import bench_kernels, disagreements, measure

    device = "gpu" if gpu else "cpu"
    kernels = bench_kernels(registry(), device)
    known = {word for kernel in kernels for word in (kernel.id, kernel.id.rpartition("/")[0]) if word}
    for word in only:
        if word not in known:
            raise LookupFailed(f"--only {word}: no such kernel or task; {suggestion(word, known)}")
    if only:
        kernels = [kernel for kernel in kernels if {kernel.id, kernel.id.rpartition("/")[0]} & set(only)]
    common = [word for word in overrides if not word.startswith("evaluator.")]

    def run(which: str, words: tuple[str, ...] | list[str]) -> Measured:
        click.echo(f"{which}: {len(kernels)} kernels", err=True)
        found = measure(kernels, which, registry=registry(), device=device, overrides=words, seed=seed)
        return asyncio.run(found)

    measured = [run(name, overrides)]
    if against is not None:
        measured.append(run(against, common))
    differing = disagreements(measured[0], measured[1]) if against is not None else []
    lost = [one.kernel.id for one in measured[0].results if one.executed and one.outcome.value == "infra_error"]
    document: dict[str, Any] = {"evaluators": [one.figures() for one in measured], "lost": lost}
    if against is not None:
        document |= {"agreement": 1 - len(differing) / max(1, len(kernels)), "differing": differing}
    click.echo(json.dumps(document, indent=2) if as_json else "\n".join(_lines(document)))
    context.exit(1 if differing or lost else 0)


def _lines(document: dict[str, Any]) -> list[str]:
    columns = document["evaluators"]
    width = max(map(len, columns[0]))
    lines = [f"{key:<{width}}  " + "  ".join(f"{one[key]!s:>12}" for one in columns) for key in columns[0]]
    if "agreement" in document:
        lines.append(f"equal outcome and verdict: {document['agreement']:.1%}")
    for one in document.get("differing", []):
        pairs = [
            f"{name} {found['outcome']}, {found['verdict']}" for name, found in one.items() if isinstance(found, dict)
        ]
        lines.append(f"{one['id']}: {'; '.join(pairs)}")
    return [*lines, *(f"{name}: infrastructure error" for name in document["lost"])]
