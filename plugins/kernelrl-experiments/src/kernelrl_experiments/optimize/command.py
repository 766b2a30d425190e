"""`kernelrl optimize`: search for a better kernel of one task."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from kernelrl_core.cli.output import print_json, print_lines, require_output, show_warnings, table
from kernelrl_core.environment.one_kernel import find_backends
from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.run_log import log_to
from kernelrl_core.planning.load import LoadedRecipe, load_recipe
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.prompts.extraction import extract_file
from kernelrl_core.runs.directory import RunDir, find_run, named_path
from kernelrl_core.sources.kernel_files import KernelReader
from kernelrl_core.sources.packages import imported_texts
from kernelrl_core.storage import disk_error, write_atomically
from kernelrl_core.tasks.lookup import find_task, source_for
from kernelrl_core.training.continuation import run_recipe
from kernelrl_core.types import Outcome
from kernelrl_experiments.check.options import split_arguments
from kernelrl_experiments.optimize.found import Found
from kernelrl_experiments.optimize.rounds import optimize
from kernelrl_experiments.optimize.runs import (
    Job,
    Limits,
    default_path,
    finished_result,
    open_run,
    read_arguments,
    write_result,
)
from kernelrl_experiments.optimize.text import facts
from kernelrl_report.report import write_report

_REPORT_BYTES = 60_000_000
_METHODS = ("refine", "best_of_n", "beam", "islands")


@click.command("optimize")
@click.argument("words", nargs=-1, metavar="TASK [KERNEL] [KEY=VALUE]...")
@click.option("--model", "-m", help="Name of the model at the endpoint.")
@click.option("--base-url", help="URL of an API that speaks OpenAI's protocol, up to and including /v1.")
@click.option("--backend", "-b", help="Kernel language, such as cpp. Default: that of KERNEL, or of the recipe.")
@click.option("--function", default="", metavar="NAME", help="KERNEL is this function or class of its file.")
@click.option("--path", "package", default="", metavar="DIR", help="Directory of your package, for KERNEL and replies.")
@click.option("--recipe", "-r", default="optimize", show_default=True, help="Recipe of the search.")
@click.option("--method", type=click.Choice(_METHODS), help="What replies continue from. Default: that of the recipe.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds, at most. Default: 8.")
@click.option("--width", type=click.IntRange(min=1), help="Concurrent replies of a round. Default: 4.")
@click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="US dollars, never exceeded.")
@click.option("--evaluations", type=click.IntRange(min=1), help="Evaluations, at most.")
@click.option("--target-speedup", type=click.FloatRange(min=0, min_open=True), help="End at this speedup.")
@click.option("--patience", type=click.IntRange(min=1), help="Rounds without progress that end the search. Default: 3.")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="File for the best kernel.")
@click.option("--force", is_flag=True, help="Overwrite an existing --output file.")
@click.option("--name", help="Name of the run directory below ./runs. Default: from the arguments.")
@click.option("--resume", metavar="RUN", help="Continue this search; needs no other argument.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    recipe: str,
    output: Path | None,
    force: bool,
    name: str | None,
    resume: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Improve KERNEL for TASK with a language model, or write one if KERNEL is not given.

    TASK and KERNEL are those of 'kernelrl check'; a wrong KERNEL is repaired first. With --path, replies can import
    everything in the package, also a finished kernel. Each round samples replies that
    continue from the best kernels so far, with their measured times, and evaluates them as 'check' does. All attempts
    are in a run directory. The same command, or --resume RUN, continues an interrupted search, and a finished one with
    higher limits. KEY=VALUE override recipe keys.

    With --budget-usd every reply reserves its highest price first: sampling.max_tokens at cost.prices.

    Exit code 0: there is a correct and clean kernel; 1: there is none.

    \b
    Examples:
      kernelrl optimize my_task.py --model qwen3 --base-url http://127.0.0.1:8000/v1 -o best.py
      kernelrl optimize my_task.py my_kernel.py -b cpp --model qwen3 --method islands --target-speedup 2 -o best.py
      kernelrl optimize starter/2/softmax --model gpt-5 --budget-usd 2 cost.prices='{prompt: 1.25, reply: 10}'
      kernelrl optimize --resume optimize-softmax-1a2b3c4d --rounds 16
    """
    arguments, overrides = split_arguments(words)
    overrides += _overrides(options)
    if resume is not None:
        if arguments:
            raise UsageError("--resume continues a search with its own task and kernel", fix=f"remove {arguments[0]}")
        path = find_run(resume).path
        job = _resumed(path, overrides, options, registry())
    else:
        job = _new(arguments, overrides, recipe, options, registry())
        path = named_path(name) if name is not None else default_path(job)
    result = finished_result(path, job)
    if result is None:
        if output is not None:
            require_output(output, force=force)
        click.echo(f"run: {path}", err=True)
        result = _run(path, job, overrides)
    _finish(result, path, output, force=force)
    if as_json:
        print_json(result)
    else:
        written = [("written", result["output"])] if result["output"] is not None else []
        rows = [("run", result["run"]), *result["facts"], *written, ("report", result["report"])]
        print_lines(table(rows))
    context.exit(0 if result["best"] is not None else 1)


def _overrides(options: dict[str, Any]) -> tuple[str, ...]:
    """Options as recipe keys."""
    keys = {
        "model": "policy.model",
        "base_url": "policy.base_url",
        "backend": "backend.use",
        "method": "eval.search.method",
        "rounds": "episode.turns",
        "width": "eval.samples",
        "budget_usd": "cost.budget_usd",
    }
    found = [f"{key}={json.dumps(options[name])}" for name, key in keys.items() if options[name] is not None]
    return tuple(found)


def _limits(options: dict[str, Any], default: Limits) -> Limits:
    given = {name: options[name] for name in ("evaluations", "target_speedup", "patience") if options[name] is not None}
    return attrs.evolve(default, **given)


def _new(
    arguments: Sequence[str], overrides: tuple[str, ...], recipe: str, options: dict[str, Any], registry: Registry
) -> Job:
    """The search of the command line.

    Raises:
        UsageError: an argument is missing or superfluous, the recipe is invalid, or KERNEL is no kernel file.
        LookupFailed: there is no such task.
    """
    if not arguments:
        raise UsageError("no task is given", fix="kernelrl tasks list, or name a file in KernelBench's format")
    if len(arguments) > 2:
        raise UsageError(f"one task and one kernel are searched for, not also {arguments[2]}")
    task_name, *kernels = arguments
    reader = KernelReader.opened(options["function"], options["package"])
    kernel = reader.read(kernels[0]) if kernels else ""
    keys = [override.partition("=")[0] for override in overrides]
    texts = "\n".join([kernel, *imported_texts(kernel, reader.package)])
    if kernel and not any(key.startswith("backend") for key in keys) and (found := find_backends(texts, registry)):
        overrides += (f"backend.use={found[0]}",)
    if options["base_url"] is not None and "policy.api_key_env" not in keys and not os.environ.get("OPENAI_API_KEY"):
        overrides += ("policy.api_key_env=null",)
    loaded = load_recipe(recipe, overrides, registry=registry)
    show_warnings(loaded)
    if loaded.recipe.eval.search is None:
        raise UsageError(
            f"recipe {loaded.name!r} has no search", fix=f"add --method {_METHODS[0]}, or --recipe optimize"
        )
    task = find_task(task_name, registry=registry, source=source_for(task_name, loaded.recipe.tasks, registry))
    if kernel:
        _require_kernel(kernel, kernels[0], loaded, registry)
    place = str(Path(task_name).absolute()) if Path(task_name).is_file() else task_name
    limits = _limits(options, Limits())
    return Job(loaded, registry, task, place, kernel, kernels[0] if kernels else "", limits, reader.package)


def _resumed(path: Path, overrides: tuple[str, ...], options: dict[str, Any], registry: Registry) -> Job:
    """The search of a run directory, with higher limits if they are given."""
    run = RunDir(path)
    own = read_arguments(run)
    loaded = run_recipe(run, registry, overrides)
    source = source_for(own["task"], loaded.recipe.tasks, registry)
    task = find_task(own["task"], registry=registry, source=source)
    limits = _limits(options, Limits(**own["limits"]))
    package = own.get("package", {})
    return Job(loaded, registry, task, own["task"], own["kernel"], own["kernel_name"], limits, package)


def _require_kernel(text: str, name: str, loaded: LoadedRecipe, registry: Registry) -> None:
    """
    Raises:
        UsageError: the file has no kernel that could be evaluated.
    """
    use = loaded.recipe.backend
    fences = registry.make("backends", use).facts.fences
    extraction = extract_file(text, fences=fences, backend=use.use)
    if extraction.candidate is None:
        raise UsageError(f"{name}: {extraction.message}", fix="name a file that defines ModelNew", see="kernel-files")


def _run(path: Path, job: Job, overrides: Sequence[str]) -> dict[str, Any]:
    """Search, and keep the result.

    Raises:
        KernelRLError: the search failed; it can be continued.
    """
    run = open_run(path, job, overrides)
    console = Console(run.set_progress, run.path / "logs.log")
    try:
        with log_to(run.path / "logs.log", console):
            try:
                run.set_state("running")
                found = asyncio.run(optimize(run, job, console))
            except BaseException as error:
                console.close()
                _record_failure(run, first_error(error), console)
                raise first_error(error) from None
            console.close()
            result = _document(run, job, found)
            write_result(run, job, result)
            run.set_state("finished")
            write_report(run, run.path / "report.html", _REPORT_BYTES)
    finally:
        run.unlock()
    return result


def _record_failure(run: RunDir, error: BaseException, console: Console) -> None:
    is_stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
    run.set_state("stopped" if is_stopped else "failed", str(error), console.progress())
    if is_stopped or isinstance(error, KernelRLError):
        console.show(f"all attempts are saved; continue with: kernelrl optimize --resume {run.path}")


def _document(run: RunDir, job: Job, found: Found) -> dict[str, Any]:
    """The result as plain data, as `--json` prints it."""
    recipe, first = job.loaded.recipe, 1 if job.kernel else 0
    replies = found.turns[first:]
    best = None
    if found.best is not None and found.best.candidate is not None:
        turn = found.best
        evaluation = turn.evaluation
        best = {
            "turn": turn.id.turn,
            "round": 0 if turn.id.turn < first else (turn.id.turn - first) // recipe.eval.samples + 1,
            "given": turn.id.turn < first,
            "kernel_sha256": found.best.candidate.sha256,
            "speedup": turn.speedup,
            "selected_speedup": found.selected_speedup,
            "speedup_ci": evaluation.speedup_ci if evaluation is not None else None,
            "runtime_us": evaluation.runtime.median_us if evaluation is not None and evaluation.runtime else None,
            "baseline_us": evaluation.baseline.median_us if evaluation is not None and evaluation.baseline else None,
            "source": found.best.candidate.source,
        }
    return {
        "run": str(run.path),
        "task": job.task.id,
        "method": recipe.eval.search.method if recipe.eval.search is not None else None,
        "best": best,
        "given": job.kernel_name or None,
        "stopped_by": found.stopped_by,
        "rounds": found.rounds,
        "replies": len(replies),
        "outcomes": {o.value: n for o in Outcome if (n := sum(turn.outcome is o for turn in replies))},
        "truncated": sum(turn.reply.stop_reason == "length" for turn in replies),
        "max_tokens": recipe.sampling.max_tokens,
        "evaluations": found.evaluations,
        "prompt_tokens": found.spent.prompt_tokens,
        "reply_tokens": found.spent.reply_tokens,
        "usd": found.usd,
        "budget_usd": recipe.cost.budget_usd,
        "untimed": found.untimed or None,
        "seconds": round(found.seconds, 1),
        "facts": facts(found, recipe, bool(job.kernel)),
        "report": str(run.path / "report.html"),
        "output": None,
    }


def _finish(result: dict[str, Any], path: Path, output: Path | None, *, force: bool) -> None:
    """Write the best kernel. A file that has it already is not written again.

    Raises:
        UsageError: the file exists with another content.
        StorageError: it cannot be written.
    """
    best = result["best"]
    if best is None or output is None:
        return
    try:
        is_written = output.is_file() and output.read_text(encoding="utf-8") == best["source"]
        if not is_written:
            require_output(output, force=force)
            write_atomically(output, best["source"])
    except (OSError, UnicodeDecodeError) as error:
        raise disk_error(output, error if isinstance(error, OSError) else OSError(str(error))) from error
    result["output"] = str(output)
