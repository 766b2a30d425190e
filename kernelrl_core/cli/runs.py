"""`kernelrl runs`: list, show, compare and delete runs, and list their suspect samples."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from kernelrl_core.runs.directory import RunDir


@click.group("runs")
def command() -> None:
    """List the runs below ./runs, show, compare or delete them, and review suspect samples.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs compare first second
      kernelrl runs suspects first
    """


@command.command("list", short_help="List runs with state and progress.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the runs below ./runs, oldest first, with state, progress and share of correct kernels.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs list --json
    """
    from kernelrl_core.runs.directory import list_runs

    found = [run_facts(run) for run in list_runs()]
    if as_json:
        print_json({"runs": found})
        return
    if not found:
        click.echo("no runs below ./runs; start one with: kernelrl run quickstart", err=True)
    rows = []
    for facts in found:
        if facts["damage"] is not None:
            rows.append((facts["run"], facts["state"], "damaged", facts["damage"]))
            continue
        rate = facts["last_correct_rate"]
        correct = "" if rate is None else f"correct {rate:.0%}"
        rows.append((facts["run"], facts["state"], f"step {facts['steps']}/{facts['steps_total'] or '?'}", correct))
    if rows:
        print_lines(table(rows))


def run_facts(run: RunDir) -> dict[str, Any]:
    """The summary of a run; of a run whose files cannot be read, the message under `damage`."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import summary

    try:
        return {**summary(find_run(str(run.path))), "damage": None}
    except KernelRLError as error:
        return {"run": str(run.path), "state": run.state()[0], "damage": error.message}


@command.command("show", short_help="Show the state and result of a run.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_command(run: str, as_json: bool) -> None:
    """Show RUN: state, result, start time, version and latest checkpoint. --json adds the provenance.

    \b
    Examples:
      kernelrl runs show quickstart
      kernelrl runs show runs/quickstart --json
    """
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import result_rows, summary

    found = find_run(run)
    facts, origin = summary(found), found.provenance()
    checkpoints = list(dict.fromkeys(row["name"] for row in found.rows("checkpoints")))
    if as_json:
        print_json({**facts, "checkpoints": checkpoints, "provenance": origin})
        return
    rows = [*result_rows(facts), ("started", origin.get("started", "unknown"))]
    rows.append(("version", f"kernelrl {origin.get('kernelrl', 'unknown')}"))
    print_lines(table([*rows, ("latest checkpoint", checkpoints[-1] if checkpoints else "none")]))


@command.command("compare", short_help="Compare held-out evaluations of runs.")
@click.argument("results", nargs=-1, required=True, metavar="RUN|FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare_command(results: tuple[str, ...], as_json: bool) -> None:
    """Compare held-out evaluations task by task: the first with each other one.

    Each is a run, whose last held-out evaluation counts, RUN@N for the one after N steps, or a file of `kernelrl eval
    --output`, which may hold several. Differences of recipe, result and cost are printed, with 95 % intervals over the
    common tasks and the smallest detectable difference.

    \b
    Examples:
      kernelrl runs compare quickstart quickstart_raicl
      kernelrl runs compare quickstart@0 quickstart
      kernelrl runs compare before.json after.json --json
    """
    from kernelrl_core.cli.runs_compare import comparison, comparison_lines
    from kernelrl_core.errors import UsageError
    from kernelrl_core.heldout.results import read_results

    found = [result for name in results for result in read_results(name)]
    if len(found) < 2:
        raise UsageError(
            f"nothing to compare with {found[0].name}",
            fix="name a second run, RUN@N or file of kernelrl eval --output",
            see="evaluation-results",
        )
    document = comparison(found)
    if as_json:
        print_json(document)
    else:
        print_lines(comparison_lines(document))


@command.command("rm", short_help="Delete runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Delete without a question.")
def rm_command(runs: tuple[str, ...], yes: bool) -> None:
    """Delete each RUN with its samples and checkpoints, after a question. A running one is refused.

    \b
    Example:
      kernelrl runs rm first second --yes
    """
    from pathlib import Path

    from kernelrl_core.errors import UsageError
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.storage import disk_error, remove_directory

    for name in runs:
        if Path(name).exists() and (Path("runs") / name).exists():
            raise UsageError(f"{name!r} is a path and the name of a run", fix=f"write ./{name} or runs/{name}")
    found = [find_run(name, damaged=True) for name in dict.fromkeys(runs)]
    if busy := [str(run.path) for run in found if run.locked()]:
        raise UsageError(
            f"in use by another process: {', '.join(busy)}", fix=f"kernelrl status {busy[0]}", see="run-in-use"
        )
    if not yes:
        paths = ", ".join(str(run.path) for run in found)
        try:
            click.confirm(f"delete {paths} with all samples and checkpoints?", abort=True, err=True)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise UsageError("nothing was deleted: the question was not confirmed", fix="add --yes") from None
    for run in found:
        try:
            remove_directory(run.path)
        except OSError as error:
            raise disk_error(run.path, error) from error
        click.echo(f"deleted: {run.path}", err=True)


@command.command("suspects", short_help="List the samples that a person should review.")
@click.argument("run")
@click.option("--hacked", is_flag=True, help="Include samples with outcome hacked.")
@click.option("--kernels", type=click.Path(file_okay=False), help="Write each kernel to this directory as SAMPLE.py.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def suspects_command(run: str, hacked: bool, kernels: str | None, as_json: bool) -> None:
    """List the training samples of RUN that a person should review.

    These are the correct samples with verdict suspect, and the correct samples that failed verification
    (verify.train). "row" is the line number in samples.jsonl.

    \b
    Examples:
      kernelrl runs suspects quickstart
      kernelrl runs suspects quickstart --kernels suspects
    """
    from pathlib import Path

    from kernelrl_core.errors import UsageError
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.review import suspect_samples, write_kernels

    found = find_run(run)
    samples = suspect_samples(found, hacked=hacked)
    if kernels is not None:
        try:
            write_kernels(found, samples, Path(kernels))
        except OSError as error:
            raise UsageError(f"--kernels {kernels}: {error.strerror or error}") from None
    if as_json:
        print_json({"run": str(found.path), "suspects": samples})
        return
    for sample in samples:
        speedup = "" if sample["speedup"] is None else f"  speedup {sample['speedup']:.2f}"
        click.echo(f"{sample['sample']}  {sample['task_id']}  {sample['outcome']}{speedup}  row {sample['row']}")
        for finding in sample["findings"]:
            click.echo(f"    {finding['rule']} ({finding['severity']}): {finding['evidence']}")
        if sample["verified"] is False:
            click.echo("    failed verification")
    click.echo(f"{len(samples)} of {len(found.rows('samples'))} samples to review", err=True)
