"""Files of checkpoints. A checkpoint directory is either complete or absent.

The row of a checkpoint has the hashes of its files, so that later damage, such as that of a failing disk, is detected.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.errors import KernelRLError, LookupFailed, UsageError, nearest
from kernelrl_core.interfaces.policies import Policy, TrainablePolicy
from kernelrl_core.monitoring.progress import progress_text
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.storage import disk_error, remove_directory, replace_directory

__all__ = [
    "begin_from",
    "best_checkpoint",
    "checkpoint_damage",
    "checkpoint_name",
    "choose_checkpoint",
    "kept_checkpoints",
    "load_checkpoint",
    "prune_checkpoints",
    "save_checkpoint",
    "sweep",
]


def checkpoint_name(steps_done: int) -> str:
    """Name of the checkpoint after `steps_done` steps, such as `000004`."""
    return f"{steps_done:06d}"


async def save_checkpoint(policy: TrainablePolicy, directory: Path, name: str, *, component: str) -> dict[str, Any]:
    """Save the policy as `directory/name`.

    Returns:
        Entries of the checkpoint's row: `policy`, the state that `Policy.load` requires; `files`, the hex SHA-256 of
        each file by its path in the checkpoint.

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
        files = await asyncio.to_thread(_file_hashes, growing)
        # A crash between rename and commit leaves a directory of this name without a row.
        await asyncio.to_thread(replace_directory, growing, directory / name)
    except OSError as error:
        raise disk_error(growing, error) from error
    return {"policy": state, "files": files}


def checkpoint_damage(directory: Path, row: Mapping[str, Any]) -> str:
    """The damage of a checkpoint's files, as text; empty if they are as they were saved.

    Args:
        row: its row of `checkpoints.jsonl`.
    """
    if row["policy"] is None:
        return ""
    files = directory / row["name"]
    if not files.is_dir():
        return "its files are missing"
    try:
        present = _file_hashes(files)
    except OSError as error:
        return f"its files cannot be read: {error.strerror}"
    for name, digest in row["files"].items():
        if present.get(name) != digest:
            return f"{name} {'differs from the saved file' if name in present else 'is missing'}"
    return ""


def _file_hashes(directory: Path) -> dict[str, str]:
    hashes = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            hashes[path.relative_to(directory).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes


async def load_checkpoint(policy: Policy, directory: Path, row: Mapping[str, Any], *, component: str) -> None:
    """Load a checkpoint into the policy.

    Args:
        row: its row of `checkpoints.jsonl`. Without a policy state nothing is loaded.

    Raises:
        UsageError: the policy cannot load checkpoints.
        KernelRLError: the files are damaged, or the policy fails.
    """
    if row["policy"] is None:
        return
    trainable = _require_trainable(policy, component)
    if damage := await asyncio.to_thread(checkpoint_damage, directory, row):
        raise KernelRLError(
            f"checkpoint {row['name']} in {directory} is damaged: {damage}",
            fix="use an earlier checkpoint",
            see="checkpoint",
        )
    with plugin_boundary(component, "load"):
        await trainable.load(row["policy"], directory / row["name"])


async def begin_from(policy: Policy, state: Mapping[str, Any], files: Path, *, component: str) -> None:
    """Let the policy begin with the weights of another run's checkpoint.

    Args:
        state: `policy` of the checkpoint's row.
        files: directory with the files of the checkpoint.

    Raises:
        UsageError: the policy cannot begin with saved weights, or these are of another model.
        KernelRLError: the files are missing, or the policy fails.
    """
    trainable = _require_trainable(policy, component)
    if not files.is_dir():
        raise KernelRLError(
            f"the weights that the run began with are missing: {files}", fix="restore the directory", see="checkpoint"
        )
    with plugin_boundary(component, "begin_from"):
        await trainable.begin_from(state, files)


def _require_trainable(policy: Policy, component: str) -> TrainablePolicy:
    if not isinstance(policy, TrainablePolicy):
        raise UsageError(
            f"{component} cannot load checkpoints",
            fix="use the policy that the run was trained with",
            see="checkpoint-model",
        )
    return policy


def kept_checkpoints(run: RunDir) -> dict[str, Mapping[str, Any]]:
    """Name -> row of the checkpoints whose files are left, in the order in which they were saved."""
    kept: dict[str, Mapping[str, Any]] = {}
    for row in run.rows("checkpoints"):
        kept.pop(row["name"], None)  # saved again after a damage
        if row["policy"] is None or (run.checkpoints / row["name"]).is_dir():
            kept[row["name"]] = row
    return kept


def choose_checkpoint(run: RunDir, name: str, *, also: Sequence[str] = ()) -> Mapping[str, Any]:
    """The row of a checkpoint by name (`000004`, `4`, `last`, or `best` by `train.keep_best`).

    Args:
        also: other names that the caller accepts, for the message.

    Raises:
        LookupFailed: there is none, or its files were removed.
    """
    directory, rows = run.checkpoints, run.rows("checkpoints")
    if not rows:
        state, progress = run.state()[0], run.progress()
        phase = f" in phase {progress_text(progress)}" if progress is not None else ""
        fix = "wait for it" if state == "running" else f"kernelrl resume {run.word}"
        raise LookupFailed(f"run {run.path} has no checkpoint yet; it is {state}{phase}", fix=fix, see="checkpoint")
    kept = kept_checkpoints(run)
    names = list(kept)
    wanted = checkpoint_name(int(name)) if name.isdecimal() else name
    if wanted == "best" and (best := best_checkpoint(rows)) is not None:
        wanted = str(best["name"])
    found = kept.get(names[-1] if wanted == "last" and names else wanted)
    if found is not None:
        return found
    if wanted in {"last", *(row["name"] for row in rows)}:
        which = "the files of every checkpoint" if wanted == "last" else f"the files of checkpoint {wanted}"
        raise LookupFailed(
            f"{which} were removed from {directory}; left: {', '.join(names) or 'none'}",
            fix="choose one that is left; train.keep_checkpoints keeps more",
            see="checkpoint",
        )
    if wanted == "best":
        raise LookupFailed(
            f"no checkpoint of run {run.path} is marked as the best one",
            fix="set train.keep_best to a metric of the held-out evaluation, such as eval/pass@1",
            see="checkpoint",
        )
    names = [*names, *(["last"] if names else []), *also]
    close = nearest(wanted, names)
    hint = f"did you mean {close!r}? known" if close else "known"
    raise LookupFailed(f"no checkpoint {name!r} in {directory}; {hint}: {', '.join(names) or 'none'}")


def best_checkpoint(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row of the checkpoint with the highest value of `train.keep_best`; None if no row has one."""
    return next((row for row in reversed(rows) if row.get("best")), None)


def prune_checkpoints(directory: Path, keep: int | None, also: Collection[str] = ()) -> None:
    """Remove the files of all but the `keep` most recent checkpoints, and those named in `also`; None keeps all."""
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    for name in names[: -keep if keep else 0]:
        if name not in also:
            remove_directory(directory / name)


def sweep(directory: Path) -> None:
    """Remove the incomplete checkpoint directories that a crash left."""
    for path in directory.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
