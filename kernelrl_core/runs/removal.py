"""Deletion of runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from kernelrl_core.errors import UsageError
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.storage import disk_error, remove_directory

__all__ = ["remove_run", "runs_to_remove"]


def runs_to_remove(names: Iterable[str]) -> list[RunDir]:
    """The runs that a user names for deletion, each once. Damaged ones are included.

    Raises:
        LookupFailed: a run does not exist.
        UsageError: a name means two directories, or another process works on one of the runs.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if Path(name).exists() and (Path("runs") / name).exists():
            raise UsageError(f"{name!r} is a path and the name of a run", fix=f"write ./{name} or runs/{name}")
    found = [find_run(name, damaged=True) for name in names]
    if busy := [str(run.path) for run in found if run.locked()]:
        raise UsageError(
            f"in use by another process: {', '.join(busy)}",
            fix=f"kernelrl status {shlex.quote(str(busy[0]))}",
            see="run-in-use",
        )
    return found


def remove_run(run: RunDir) -> None:
    """Delete a run with its samples and checkpoints.

    Raises:
        KernelRLError: a file cannot be deleted.
    """
    try:
        remove_directory(run.path)
    except OSError as error:
        raise disk_error(run.path, error) from error
