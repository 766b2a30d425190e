"""`kernelrl runs`: list and show runs, and their suspects."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, table


@click.group("runs")
def command() -> None:
    """List and show the runs below ./runs."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the runs, oldest first."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.runs.directory import list_runs
    from kernelrl_core.runs.summary import summary

    found = []
    for run in list_runs():
        try:
            found.append(summary(run))
        except KernelRLError as error:
            click.echo(f"kernelrl: {error.message}", err=True)
    if as_json:
        print_json({"runs": found})
        return
    if not found:
        click.echo("no runs below ./runs; begin one with: kernelrl run quickstart", err=True)
    rows = []
    for facts in found:
        rate = facts["last_correct_rate"]
        correct = "" if rate is None else f"correct {rate:.0%}"
        rows.append((facts["run"], facts["state"], f"step {facts['steps']}/{facts['steps_total'] or '?'}", correct))
    if rows:
        print_lines(table(rows))


@command.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_command(run: str, as_json: bool) -> None:
    """Show a run: its state, its result and where it came from."""
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import result_rows, summary

    found = find_run(run)
    facts, origin = summary(found), found.provenance()
    checkpoints = [row["name"] for row in found.rows("checkpoints")]
    if as_json:
        print_json({**facts, "checkpoints": checkpoints, "provenance": origin})
        return
    rows = [*result_rows(facts), ("began", origin["started"]), ("version", f"kernelrl {origin['kernelrl']}")]
    print_lines(table([*rows, ("saved", checkpoints[-1] if checkpoints else "no checkpoint")]))


@command.command("suspects")
@click.argument("run")
@click.option("--hacked", is_flag=True, help="Also the samples that ended as hacked.")
@click.option("--kernels", type=click.Path(file_okay=False), help="Write each kernel to this directory, as SAMPLE.py.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def suspects_command(run: str, hacked: bool, kernels: str | None, as_json: bool) -> None:
    """List the samples of a run that a person should look at.

    Those that were correct and suspect, whose speedup counted as at most 1, and those whose second judgement
    (verify.train) was not correct. Their row is the line of samples.jsonl.
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
            click.echo("    not correct when it was judged again")
    click.echo(f"{len(samples)} of {len(found.rows('samples'))} samples", err=True)
