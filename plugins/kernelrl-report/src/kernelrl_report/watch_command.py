"""`kernelrl watch`: a live view of a run, from its files only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from kernelrl_report.observer import RunObserver

_EVERY_S = 1.0
"""Seconds between two views."""


@click.command("watch")
@click.argument("run")
@click.option("--once", is_flag=True, help="Print the view once, also of an active run.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write the view to this file as a picture, and exit.")
def command(run: str, once: bool, svg: str | None) -> None:
    """Show RUN live: progress, rates and curves, findings, cost, slowest evaluations, and where the seconds are spent.

    Only files of the run are read, so this works over ssh, beside any run, on a finished run and on a copy. Ctrl-C ends
    the view, never the run. Without a terminal, the view is printed once, then a line for each step.

    \b
    Examples:
      kernelrl watch quickstart
      kernelrl watch runs/quickstart --once
      kernelrl watch quickstart | tee watch.txt
    """
    from rich.console import Console

    from kernelrl_core.api.runs import find_run
    from kernelrl_report.observer import RunObserver
    from kernelrl_report.watch_view import WIDTH, view_lines

    observer = RunObserver(find_run(run))
    observer.update()
    if svg is not None:
        _write_svg(observer, svg)
        return
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    if once or observer.state != "running":
        width = console.width if console.is_terminal else WIDTH
        console.print(*view_lines(observer, width), sep="\n")
        return
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            _show(observer, console)
        else:
            _print(observer, console)
    except KeyboardInterrupt:
        click.echo(f"the run continues; stop it with: kernelrl stop {observer.run.word}", err=True)


def _show(observer: RunObserver, console: Console) -> None:
    """Show the view on the whole screen until the run ends, then print it."""
    from rich.console import Group
    from rich.live import Live

    from kernelrl_report.watch_view import fitted, view_lines

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while observer.state == "running":
            width, height = console.size
            live.update(Group(*fitted(observer, width, height)), refresh=True)
            time.sleep(_EVERY_S)
            observer.update()
    console.print(*view_lines(observer, console.width), sep="\n")


def _print(observer: RunObserver, console: Console) -> None:
    """Print the view, then a line for each step, each alarm and at times the progress, until the run ends."""
    from kernelrl_core.api.monitoring import LINE_EVERY_S, progress_text, step_line
    from kernelrl_report.watch_view import WIDTH, printable, view_lines

    console.print(*view_lines(observer, WIDTH), sep="\n")
    alarms, printed = len(observer.alarms), time.monotonic()
    while observer.state == "running":
        time.sleep(_EVERY_S)
        lines = [step_line(row, observer.steps_total or 0) for row in observer.update()]
        lines += [f"step {step}: {line}" for step, line in observer.alarms[alarms:]]
        alarms = len(observer.alarms)
        if not lines and observer.progress is not None and time.monotonic() - printed >= LINE_EVERY_S:
            lines = [progress_text(observer.progress)]
        if lines:
            printed = time.monotonic()
            click.echo("\n".join(map(printable, lines)))
    click.echo(f"state {observer.state}" + (f": {printable(observer.error)}" if observer.error else ""))


def _write_svg(observer: RunObserver, path: str) -> None:
    import io
    import re
    from pathlib import Path

    from rich.console import Console

    from kernelrl_core.api.errors import UsageError
    from kernelrl_report.watch_view import WIDTH, view_lines

    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(*view_lines(observer, WIDTH), sep="\n")
    picture = console.export_svg(title=f"kernelrl watch {observer.run.name}", unique_id="watch")
    # Without rich's fonts, which a browser would load from another server.
    picture = re.sub(r" *@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--svg {path}: {error.strerror or error}") from None
