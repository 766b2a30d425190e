"""`kernelrl export`: kernels, samples or weights of a run in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.api.commands import print_json, require_output

if TYPE_CHECKING:
    from kernelrl_core.api.results import Results

_OPTIONS = {"--checkpoint": "weights", "--level": "kernelbench", "--suspects": "kernels"}
"""Option -> the only format in which it has an effect."""


@click.command("export")
@click.argument("source", metavar="RUN|RESULT")
@click.option(
    "--as",
    "form",
    type=click.Choice(["kernels", "kernelbench", "dataset", "weights"]),
    default="kernels",
    show_default=True,
    help="Format.",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Directory to create.",
)
@click.option("--checkpoint", help="weights: step count of the checkpoint, or 'last' (default).")
@click.option("--level", type=click.IntRange(min=1), help="kernelbench: level, if the evaluation has several.")
@click.option("--suspects", is_flag=True, help="kernels: include kernels with verdict suspect.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    source: str,
    form: str,
    output: Path,
    checkpoint: str | None,
    level: int | None,
    suspects: bool,
    as_json: bool,
) -> None:
    """Write kernels, samples or weights as files that other tools read.

    RUN is a run directory or a name below ./runs. RESULT is a file of 'kernelrl eval --output'.

    \b
    --as kernels       the best kernel of each task, with verdict and provenance in kernels.json
    --as kernelbench   the last held-out evaluation in KernelBench's files, for its own analysis
    --as dataset       all turns as Parquet, in the layout of a Hugging Face data set
    --as weights       a checkpoint of RUN: a model, or its adapter in PEFT's format

    \b
    Examples:
      kernelrl export runs/quickstart --output best
      kernelrl export base.json --as kernelbench --output KernelBench/runs/base
      kernelrl export runs/quickstart --as dataset --output samples
      kernelrl export runs/lora --as weights --checkpoint 20 --output adapter
    """
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.results import find_results

    given = {"--checkpoint": checkpoint, "--level": level, "--suspects": suspects or None}
    for name, value in given.items():
        if value is not None and form != _OPTIONS[name]:
            raise UsageError(f"{name} has no effect with --as {form}", fix=f"remove it, or use --as {_OPTIONS[name]}")
    results = find_results(source)
    require_output(output)
    writers: Mapping[str, Callable[[Path], tuple[dict[str, Any], list[str]]]] = {
        "kernels": lambda directory: _kernels(results, directory, suspects),
        "kernelbench": lambda directory: _kernelbench(results, directory, level),
        "dataset": lambda directory: _dataset(results, directory),
        "weights": lambda directory: _weights(results, directory, checkpoint or "last"),
    }
    facts, notes = _created(output, writers[form])
    for note in notes:
        click.echo(note, err=True)
    if as_json:
        print_json({"output": str(output), "format": form, **facts})
        return
    click.echo(f"{output}: {', '.join(f'{key} {value}' for key, value in facts.items())}")


def _created(
    output: Path, write: Callable[[Path], tuple[dict[str, Any], list[str]]]
) -> tuple[dict[str, Any], list[str]]:
    from kernelrl_core.api.config import disk_error, new_directory

    try:
        with new_directory(output) as growing:
            return write(growing)
    except OSError as error:
        raise disk_error(output, error) from error


def _kernels(results: Results, directory: Path, suspects: bool) -> tuple[dict[str, Any], list[str]]:
    from kernelrl_report.best_kernels import write_best_kernels

    found = write_best_kernels(results, directory, suspects=suspects)
    excluded = sorted(found.left_out.items(), key=lambda item: -item[1])
    return {"kernels": len(found.entries)}, [f"excluded: {count} {reason}" for reason, count in excluded]


def _kernelbench(results: Results, directory: Path, level: int | None) -> tuple[dict[str, Any], list[str]]:
    import importlib.util

    from kernelrl_core.api.errors import MissingPrerequisite

    if importlib.util.find_spec("kernelrl_plugin_kernelbench") is None:
        distribution = "kernelrl-plugin-kernelbench"
        raise MissingPrerequisite(
            f"--as kernelbench needs {distribution}, which is not installed", fix=f"pip install {distribution}"
        )
    from kernelrl_plugin_kernelbench.evaluation_files import write_kernelbench_files

    found = write_kernelbench_files(results, directory, level=level)
    return {"level": found.level, "tasks": found.tasks, "samples": found.samples}, list(found.notes)


def _dataset(results: Results, directory: Path) -> tuple[dict[str, Any], list[str]]:
    from kernelrl_report.dataset_export import write_dataset

    return write_dataset(results, directory), []


def _weights(results: Results, directory: Path, checkpoint: str) -> tuple[dict[str, Any], list[str]]:
    import asyncio

    from kernelrl_core.api.components import registry
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.results import choose_checkpoint, export_weights, run_recipe

    run = results.run
    if run is None:
        raise UsageError(f"{results.path} has no weights", fix="name a run directory", see="export")
    row = choose_checkpoint(run, checkpoint)
    recipe = run_recipe(run, registry()).recipe
    asyncio.run(export_weights(run, recipe, registry(), row, directory, say=lambda line: click.echo(line, err=True)))
    return {"checkpoint": row["name"], "policy": recipe.policy.use}, []
