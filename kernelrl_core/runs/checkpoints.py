"""Files of checkpoints. A checkpoint directory is either complete or absent."""

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
    """Name of the checkpoint after `steps_done` steps, such as `000004`."""
    return f"{steps_done:06d}"


async def save_checkpoint(policy: TrainablePolicy, directory: Path, name: str, *, component: str) -> Mapping[str, Any]:
    """Save the policy as `directory/name`.

    Returns:
        The state that `Policy.load` requires, for the row of the checkpoint.

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
        # A crash between rename and commit leaves a directory of this name without a row.
        await asyncio.to_thread(replace_directory, growing, directory / name)
    except OSError as error:
        raise disk_error(growing, error) from error
    return state


async def load_checkpoint(policy: Policy, directory: Path, row: Mapping[str, Any], *, component: str) -> None:
    """Load a checkpoint into the policy.

    Args:
        row: its row of `checkpoints.jsonl`. Without a policy state nothing is loaded.

    Raises:
        UsageError: the policy cannot load checkpoints.
        KernelRLError: the files are missing, or the policy fails.
    """
    if row["policy"] is None:
        return
    files = directory / row["name"]
    if not isinstance(policy, TrainablePolicy):
        raise UsageError(f"{component} cannot load checkpoints", fix="use the policy that the run was trained with")
    if not files.is_dir():
        raise KernelRLError(f"the files of checkpoint {row['name']} are missing in {directory}")
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
    raise LookupFailed(f"no checkpoint {name!r} in {directory}; known: {have}")


def prune_checkpoints(directory: Path, keep: int | None) -> None:
    """Remove the files of all but the `keep` most recent checkpoints; None keeps all."""
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    for name in names[: -keep if keep else 0]:
        remove_directory(directory / name)


def sweep(directory: Path) -> None:
    """Remove the incomplete checkpoint directories that a crash left."""
    for path in directory.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
