"""`kernelrl runs suspects`: list the samples that a person should review."""

from __future__ import annotations

import click


@click.command("suspects", short_help="List the samples that a person should review.")
@click.argument("run")
@click.option("--hacked", is_flag=True, help="Include samples with outcome hacked.")
@click.option("--kernels", type=click.Path(file_okay=False), help="Write each kernel to this directory as SAMPLE.py.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(run: str, hacked: bool, kernels: str | None, as_json: bool) -> None:
    """List the training samples of RUN that a person should review.

    These are the correct samples with verdict suspect, and the correct samples that failed verification
    (verify.train). "row" is the line number in samples.jsonl.

    \b
    Examples:
      kernelrl runs suspects quickstart
      kernelrl runs suspects quickstart --kernels suspects
    """
    from pathlib import Path

    from kernelrl_core.api.commands import print_json
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.runs import find_run
    from kernelrl_report.suspects import suspect_samples, write_kernels

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
