"""`kernelrl export`: kernels, samples or weights of a run, or the tasks of a recipe, in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.api.commands import print_json, require_output

if TYPE_CHECKING:
    from kernelrl_core.api.results import Results

_OPTIONS = {
    "--checkpoint": "weights",
    "--level": "kernelbench",
    "--suspects": "kernels",
    "--held-out": "harbor",
    "--image": "harbor",
    "--gpus": "harbor",
}
"""Option -> the only format in which it has an effect."""
_OF_RECIPES = ("harbor", "verifiers")
"""Formats of a recipe, not of results."""


@click.command("export")
@click.argument("source", metavar="RUN|RESULT|RECIPE")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--as",
    "form",
    type=click.Choice(["kernels", "kernelbench", "dataset", "weights", "harbor", "verifiers"]),
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
@click.option("--checkpoint", help="weights: step count of the checkpoint, 'last' (default), or 'best'.")
@click.option("--level", type=click.IntRange(min=1), help="kernelbench: level, if the evaluation has several.")
@click.option("--suspects", is_flag=True, help="kernels: include kernels with verdict suspect.")
@click.option(
    "--held-out", is_flag=True, help="harbor: tasks of the held-out evaluation instead of the training tasks."
)
@click.option("--image", help="harbor: container image with kernelrl (default: kernelrl, built from Containerfile).")
@click.option("--gpus", type=click.IntRange(min=0), help="harbor: GPUs of the containers (default: 0).")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    source: str,
    overrides: tuple[str, ...],
    form: str,
    output: Path,
    checkpoint: str | None,
    level: int | None,
    suspects: bool,
    held_out: bool,
    image: str | None,
    gpus: int | None,
    as_json: bool,
) -> None:
    """Write kernels, samples, weights or tasks as files that other tools read.

    RUN is a run directory or a name below ./runs. RESULT is a file of 'kernelrl eval --output'. RECIPE, with KEY=VALUE
    to change its keys, is for harbor and verifiers.

    \b
    --as kernels       the best kernel of each task, with verdict and provenance in kernels.json
    --as kernelbench   the last held-out evaluation in KernelBench's files, for its own analysis
    --as dataset       all turns as Parquet, in the layout of a Hugging Face data set
    --as weights       a checkpoint of RUN: a model, or its adapter in PEFT's format
    --as harbor        a Harbor folder for each task of RECIPE, whose verifier is the judge
    --as verifiers     RECIPE as an environment package for the hub of verifiers; DIR is its name

    \b
    Examples:
      kernelrl export runs/quickstart --output best
      kernelrl export base.json --as kernelbench --output KernelBench/runs/base
      kernelrl export runs/quickstart --as dataset --output samples
      kernelrl export runs/lora --as weights --checkpoint 20 --output adapter
      kernelrl export quickstart_cpp --as harbor --output tasks
    """
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.results import find_results

    given = {
        "--checkpoint": checkpoint,
        "--level": level,
        "--suspects": suspects or None,
        "--held-out": held_out or None,
        "--image": image,
        "--gpus": gpus,
    }
    for name, value in given.items():
        if value is not None and form != _OPTIONS[name]:
            raise UsageError(f"{name} has no effect with --as {form}", fix=f"remove it, or use --as {_OPTIONS[name]}")
    if overrides and form not in _OF_RECIPES:
        raise UsageError(f"KEY=VALUE has no effect with --as {form}", fix="remove it, or use --as harbor")
    writers: Mapping[str, Callable[[Path], tuple[dict[str, Any], list[str]]]]
    if form in _OF_RECIPES:
        text = _recipe(source, overrides, form)
        writers = {
            "harbor": lambda directory: _harbor(text, directory, held_out, image, gpus or 0),
            "verifiers": lambda directory: _verifiers(text, directory, output.name),
        }
    else:
        results = find_results(source)
        writers = {
            "kernels": lambda directory: _kernels(results, directory, suspects),
            "kernelbench": lambda directory: _kernelbench(results, directory, level),
            "dataset": lambda directory: _dataset(results, directory),
            "weights": lambda directory: _weights(results, directory, checkpoint or "last"),
        }
    require_output(output)
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


def _recipe(name: str, overrides: tuple[str, ...], form: str) -> str:
    import importlib.util

    from kernelrl_core.api.errors import MissingPrerequisite

    if importlib.util.find_spec("kernelrl_adapters") is None:
        distribution = "kernelrl-adapters"
        raise MissingPrerequisite(
            f"--as {form} needs {distribution}, which is not installed", fix=f"pip install {distribution}"
        )
    from kernelrl_adapters.shared import read_recipe

    return read_recipe(name, overrides)


def _harbor(
    text: str, directory: Path, held_out: bool, image: str | None, gpus: int
) -> tuple[dict[str, Any], list[str]]:
    from kernelrl_adapters.harbor import DEFAULT_IMAGE, harbor_tasks, write_harbor_task

    n_tasks = n_solutions = 0
    for task in harbor_tasks(text, held_out=held_out):
        folder = directory / task.name
        folder.mkdir()
        write_harbor_task(task, text, folder, image=image or DEFAULT_IMAGE, gpus=gpus)
        n_tasks += 1
        n_solutions += task.solution is not None
    return {"tasks": n_tasks, "solutions": n_solutions}, []


def _verifiers(text: str, directory: Path, name: str) -> tuple[dict[str, Any], list[str]]:
    from kernelrl_adapters.verifiers_package import package_name, write_verifiers_package

    package = package_name(name)
    write_verifiers_package(text, directory, package)
    return {"package": package}, []


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
