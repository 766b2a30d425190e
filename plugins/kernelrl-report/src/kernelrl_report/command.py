"""`kernelrl report` and `kernelrl view`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("report")
@click.argument("run")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: report.html in the run directory.",
)
@click.option(
    "--max-mb",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Largest size in MB. Above it the texts of the least informative samples are excluded and counted.",
)
def report(run: str, output: Path | None, max_mb: int) -> None:
    """Write RUN as one HTML file that needs no server and no network.

    RUN is a run directory or a name below ./runs. An existing file is replaced. The file contains the prompts, replies
    and kernels of the run, and none of its secrets.

    \b
    Examples:
      kernelrl report quickstart
      kernelrl report copies/quickstart --output quickstart.html
    """
    from kernelrl_core.api.runs import find_run
    from kernelrl_report.report import require_output, write_report

    found = find_run(run)
    output = require_output(found, output)
    written = write_report(found, output, max_mb * 1_000_000)
    click.echo(f"report: {output}  ({written.samples} samples, {written.size / 1e6:.1f} MB)")
    if written.without_text:
        click.echo(
            f"the texts of {written.without_text} of {written.samples} samples are excluded by --max-mb {max_mb}; "
            f"all are in: kernelrl view {shlex.quote(run)}",
            err=True,
        )


@click.command("view")
@click.argument("run", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=8265, show_default=True, help="0 selects a free port.")
def view(run: str | None, port: int) -> None:
    """Show all runs below ./runs in a browser, live, until Ctrl-C. With RUN, start with that run.

    The page is served on the loopback address of this machine only. From another machine:
    ssh -L 8265:127.0.0.1:8265 HOST.

    \b
    Examples:
      kernelrl view
      kernelrl view quickstart --port 8000
    """
    from kernelrl_core.api.runs import find_run
    from kernelrl_report.server import open_server

    found = None if run is None else find_run(run)
    with open_server(found, port) as server:
        click.echo(f"view: {server.address(found)}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended", err=True)
