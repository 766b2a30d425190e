"""`kernelrl stop`: stop runs, after their step or immediately."""

from __future__ import annotations

import shlex
import signal

import click

from kernelrl_core.errors import UsageError
from kernelrl_core.runs.directory import RunDir, find_run, list_runs
from kernelrl_core.runs.lock_holder import lock_holder

_SECOND_AFTER_S = 0.5
"""Seconds between two signals. Without a pause the system may deliver them as one."""
_PATIENCE_S = 15.0
"""Seconds until a process that does not end is killed."""


@click.command("stop")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "everything", is_flag=True, help="Stop all active runs below ./runs.")
@click.option("--now", is_flag=True, help="Stop immediately, in place of after the step, and wait for the end.")
def command(runs: tuple[str, ...], everything: bool, now: bool) -> None:
    """Stop each RUN, a run directory or a name below ./runs, after its current step.

    The process that holds the lock of the run gets the signal, and no other process. --now stops it immediately, as a
    second Ctrl-C does: replies in progress are lost, finished ones are kept. A process that does not end within 15
    seconds is then killed. 'kernelrl resume' continues the run in all cases.

    \b
    Examples:
      kernelrl stop quickstart
      kernelrl stop --all --now
    """
    if bool(runs) == everything:
        raise UsageError("name the runs to stop, or give --all", fix="kernelrl status lists the active runs")
    found = (
        [run for run in list_runs() if run.locked()] if everything else [find_run(name, damaged=True) for name in runs]
    )
    if not found:
        click.echo("no run below ./runs is active", err=True)
    for run in found:
        click.echo(_stop(run, now=now))


def _stop(run: RunDir, *, now: bool) -> str:
    """Stop a run; the line for the user."""
    holder = lock_holder(run)
    if holder is None:
        return f"{run.path}: not active ({run.state()[0]})"
    with holder:
        if not now:
            # A second signal would stop it immediately.
            if (run.progress() or {}).get("stopping"):
                return f"{run.path}: already stops after its step; --now stops it immediately"
            holder.signal(signal.SIGTERM)
            return f"{run.path}: stops after its step (process {holder.pid}); kernelrl status {shlex.quote(run.name)}"
        holder.signal(signal.SIGTERM)
        # Without the lock the process only prints its result: the step ended after the first signal.
        if not holder.wait(_SECOND_AFTER_S) and run.locked():
            holder.signal(signal.SIGTERM)
        if not holder.wait(_PATIENCE_S):
            holder.signal(signal.SIGKILL)
            holder.wait(_PATIENCE_S)
            return f"{run.path}: killed (process {holder.pid}); kernelrl resume {shlex.quote(run.name)}"
    return f"{run.path}: stopped (process {holder.pid}); kernelrl resume {shlex.quote(run.name)}"
