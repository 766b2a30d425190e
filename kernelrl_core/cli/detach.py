"""Option --detach of `kernelrl run` and `kernelrl resume`: a run that outlives the shell.

The command forks. The new process has its own session and executes the command; the first one, the launcher, prints its
output until the run begins, and then waits a little for early failures. From the begin of the run on, standard output
and error of the new process are the log of the run.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import click

from kernelrl_core.cli.output import print_json
from kernelrl_core.cli.run_result import print_result
from kernelrl_core.errors import ExitCode, more
from kernelrl_core.runs.directory import RunDir

__all__ = ["Detached", "detach"]

_PATIENCE_S = 10.0
"""Seconds after which a run that still starts counts as detached. A refused key or model shows before."""
_POLL_S = 0.1


class Detached:
    """The detached process."""

    def __init__(self, control: int) -> None:
        self._control = control

    def begin(self, run: RunDir) -> None:
        """Write to the log of the run from now on. The process holds the lock of the run."""
        # The launcher must not read the progress of an earlier process.
        run.set_state("running")
        sys.stdout.flush()
        sys.stderr.flush()
        log = os.open(run.path / "logs.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(self._control, os.fsencode(run.path))
        for output in (1, 2):
            os.dup2(log, output)
        for descriptor in (log, self._control):
            os.close(descriptor)


def detach(*, as_json: bool) -> Detached:
    """Continue in a new process, which the function returns to. The present process prints, and exits.

    Its exit code is 0 when the run is detached, and that of the new process if it ends before.

    Args:
        as_json: print the result of a run that ends early as JSON.
    """
    out, err, control = os.pipe(), os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        for _, end in (out, err, control):
            os.close(end)
        try:
            _launch(child, {out[0]: 1, err[0]: 2}, control[0], as_json=as_json)
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
            raise
    os.setsid()
    for number, end in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out[1]), (2, err[1])):
        os.dup2(end, number)
    for end in (out[0], out[1], err[0], err[1], control[0]):
        os.close(end)
    return Detached(control[1])


def _launch(child: int, outputs: dict[int, int], control: int, *, as_json: bool) -> NoReturn:
    """Print the outputs of the child until it begins a run or ends, and exit."""
    with selectors.DefaultSelector() as selector:
        for end in outputs:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 65536)
                os.write(outputs[key.fd], data)
                if not data:
                    selector.unregister(key.fd)
    path = os.read(control, 65536)
    if not path:
        _exit(os.waitpid(child, 0)[1])
    run = RunDir(Path(os.fsdecode(path)))
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and (run.progress() or {"phase": "start"})["phase"] == "start":
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _show_end(run, status, as_json=as_json)
        time.sleep(_POLL_S)
    name = run.name if run.path == Path("runs") / run.name else str(run.path)
    click.echo(f"detached: {run.path} (process {child})", err=as_json)
    for line in (
        f"kernelrl status {shlex.quote(name)}",
        f"kernelrl logs {shlex.quote(name)} -f",
        f"kernelrl watch {shlex.quote(name)}",
        f"kernelrl stop {shlex.quote(name)}",
    ):
        click.echo(f"  {line}", err=as_json)
    if as_json:
        print_json({"run": str(run.path), "pid": child})
    raise click.exceptions.Exit(ExitCode.OK)


def _show_end(run: RunDir, status: int, *, as_json: bool) -> NoReturn:
    """Print the result or the error of a run that ended before it was detached, and exit."""
    if not status:
        print_result(run, as_json=as_json)
    else:
        error = run.state()[1] or f"run {run.path} ended before its first step\nfix: see {run.path / 'logs.log'}"
        for line in error.splitlines():
            click.echo(f"kernelrl: {line}", err=True)
        if "\nfix: " in error:
            click.echo(f"kernelrl: {more('run-failed')}", err=True)
    _exit(status)


def _exit(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    raise click.exceptions.Exit(code if code >= 0 else ExitCode.FAILED)
