"""Files of checkpoints: complete under their name, or not there at all."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.errors import KernelRLError, LookupFailed, UsageError
from kernelrl_core.interfaces.policies import Policy, TrainablePolicy
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.storage import disk_error, remove_directory, replace_directory

__all__ = ["checkpoint_name", "choose_checkpoint", "load_checkpoint", "prune_checkpoints", "save_checkpoint", "sweep"]


def checkpoint_name(steps_done: int) -> str:
    """Name after so many steps, such as `000004`."""
    return f"{steps_done:06d}"


async def save_checkpoint(policy: TrainablePolicy, directory: Path, name: str, *, component: str) -> Mapping[str, Any]:
    """Save the policy below `directory` under `name`; the answer is what `load` needs.

    Raises:
        KernelRLError: the disk is full, or the policy fails.
    """
    growing = directory / f".{name}"
    try:
        shutil.rmtree(growing, ignore_errors=True)
        growing.mkdir(parents=True)
        with plugin_boundary(component, "save"):
            try:
                state: Mapping[str, Any] = await policy.save(growing)
            except OSError as error:
                raise disk_error(growing, error) from error
        # A directory of this name without a row was left by a crash between renaming and committing.
        await asyncio.to_thread(replace_directory, growing, directory / name)
    except OSError as error:
        raise disk_error(growing, error) from error
    return state


async def load_checkpoint(policy: Policy, directory: Path, row: Mapping[str, Any], *, component: str) -> None:
    """Bring the policy to the state of a checkpoint.

    Raises:
        KernelRLError: its files are gone, or the policy fails.
    """
    if row["policy"] is None:
        return
    files = directory / row["name"]
    if not isinstance(policy, TrainablePolicy):
        raise UsageError(f"{component} cannot load checkpoints", fix="use the policy that the run was trained with")
    if not files.is_dir():
        raise KernelRLError(f"the files of checkpoint {row['name']} are gone from {directory}")
    with plugin_boundary(component, "load"):
        await policy.load(row["policy"], files)


def choose_checkpoint(rows: Sequence[Mapping[str, Any]], directory: Path, name: str) -> Mapping[str, Any]:
    """The row of a checkpoint by name (`000004`, `4` or `last`).

    Raises:
        LookupFailed: there is none, or its files were removed.
    """
    kept = [row for row in rows if row["policy"] is None or (directory / row["name"]).is_dir()]
    wanted = checkpoint_name(int(name)) if name.isdecimal() else name
    for row in reversed(kept):
        if wanted in ("last", row["name"]):
            return dict(row)
    have = ", ".join(row["name"] for row in kept) or "none"
    raise LookupFailed(f"no checkpoint {name!r} in {directory}; there are: {have}")


def prune_checkpoints(directory: Path, keep: int | None) -> None:
    """Remove the files of all but the newest checkpoints."""
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    for name in names[: -keep if keep else 0]:
        remove_directory(directory / name)


def sweep(directory: Path) -> None:
    """Remove what a crash left half-made or half-removed."""
    for path in directory.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
