"""`kernelrl logs`: print the log of a run."""

from __future__ import annotations

import time

import click

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.directory import find_run
from kernelrl_core.storage import disk_error


@click.command("logs")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Start with the last N lines. Default: the whole log.")
def command(run: str, follow: bool, lines: int | None) -> None:
    """Print the log of RUN, a run directory or a name below ./runs.

    \b
    Examples:
      kernelrl logs quickstart -n 20
      kernelrl logs quickstart -f
    """
    found = find_run(run)
    path = found.path / "logs.log"
    try:
        stream = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        fix = f"restore it from a copy of the run; kernelrl status {found.word} shows the state and the last error"
        raise KernelRLError(f"{path} does not exist", fix=fix, see="run-files") from error
    except OSError as error:
        raise disk_error(path, error) from error
    with stream:
        text = stream.read()
        click.echo(text if lines is None else "".join(text.splitlines(keepends=True)[-lines or len(text) :]), nl=False)
        while follow:
            running = found.locked()
            click.echo(stream.read(), nl=False)
            if not running:
                return
            time.sleep(0.3)
