"""`kernelrl tensorboard`: start TensorBoard on one run or all runs."""

from __future__ import annotations

import errno
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from kernelrl_core.api.errors import LookupFailed, MissingPrerequisite, UsageError

__all__ = ["command"]


@click.command("tensorboard")
@click.argument("run", required=False)
@click.option("--all", "all_runs", is_flag=True, help="Show all runs below ./runs.")
@click.option("--port", type=click.IntRange(1, 65535), default=6006, show_default=True, help="Port of the server.")
@click.option("--host", default="localhost", show_default=True, help="Address that the server listens on.")
def command(run: str | None, all_runs: bool, port: int, host: str) -> None:
    """Start TensorBoard on RUN, a run directory or a name below ./runs. Ctrl-C ends it.

    \b
    Examples:
      kernelrl tensorboard quickstart
      kernelrl tensorboard --all --port 6007
    """
    if (run is None) is not all_runs:
        raise click.UsageError("name either a run or --all")
    from kernelrl_core.api.runs import find_run

    if find_spec("tensorboard") is None:
        raise MissingPrerequisite("TensorBoard is not installed", fix="pip install tensorboard", see="tensorboard")
    found = None if run is None else find_run(run)
    directory = Path("runs") if found is None else found.path / "tensorboard"
    if not next(directory.glob("**/events.out.tfevents.*"), None):
        fix = "kernelrl run RECIPE 'loggers.tensorboard={use: tensorboard}'"
        if found is not None:
            path = found.path
            # A finished run is not resumed; an evaluation gives its steps to a logger that lacks them.
            ended = found.state()[0] == "finished"
            then = f"eval {path} --log-to {path}" if ended else f"resume {path} --accept-changes"
            fix = f"write loggers: {{tensorboard: {{use: tensorboard}}}} into {path}/recipe.yaml, then kernelrl {then}"
        raise LookupFailed(f"no event files in {directory}", fix=fix, see="tensorboard")
    _require_port(host, port)
    # --reload_multifile: a resumed run has several event files.
    options = ["--logdir", str(directory), "--host", host, "--port", str(port), "--reload_multifile", "true"]
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", *options])


def _require_port(host: str, port: int) -> None:
    """Raise UsageError if a server cannot listen at this address. TensorBoard itself would print a traceback or a
    hint for its own options."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} is in use", fix=f"--port {port + 1}, or another free port", see="port"
            ) from None
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}", fix="--host localhost", see="port"
        ) from None
