"""Checkpoints, training runs and sampling sessions as files below one directory, which survive a restart.

    checkpoints/RUN/KIND/NAME/   weights.pt, optimizer.pt (kind `weights` only), about.json
    runs/RUN.json  samplers/ID.json

Every file and directory is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api.config import remove_directory, replace_directory, sync_to_disk, write_atomically
from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_torch.files import read_tensors, write_tensors

__all__ = ["KINDS", "Checkpoint", "CheckpointPath", "Store"]

Kind = Literal["weights", "sampler_weights"]
KINDS: tuple[Kind, ...] = ("weights", "sampler_weights")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_WEIGHTS, _OPTIMIZER, _ABOUT = "weights.pt", "optimizer.pt", "about.json"


@attrs.frozen
class CheckpointPath:
    """`tinker://RUN/KIND/NAME`."""

    run: str
    kind: Kind
    name: str

    @classmethod
    def parse(cls, uri: str) -> CheckpointPath:
        """Parse a `tinker://` path.

        Raises:
            UsageError: it has another form.
        """
        parts = uri.removeprefix("tinker://").split("/")
        if not uri.startswith("tinker://") or len(parts) != 3 or parts[1] not in KINDS:
            raise UsageError(f"{uri!r} is not a checkpoint path, such as tinker://RUN/weights/NAME")
        return cls(_checked(parts[0]), "weights" if parts[1] == "weights" else "sampler_weights", _checked(parts[2]))

    def __str__(self) -> str:
        return f"tinker://{self.run}/{self.kind}/{self.name}"


@attrs.frozen
class Checkpoint:
    """A saved checkpoint."""

    path: CheckpointPath
    about: Mapping[str, Any]
    """`model`, `rank`, `time` (seconds since the epoch), `expires` (likewise, or null), `user_metadata`."""
    size_bytes: int

    def row(self) -> dict[str, Any]:
        """The entry in the list of Tinker's API."""
        expires = self.about["expires"]
        return {
            "checkpoint_id": f"{self.path.kind}/{self.path.name}",
            "checkpoint_type": "training" if self.path.kind == "weights" else "sampler",
            "time": _iso(self.about["time"]),
            "tinker_path": str(self.path),
            "size_bytes": self.size_bytes,
            "public": False,
            "user_metadata": self.about["user_metadata"],
            "expires_at": None if expires is None else _iso(expires),
        }


class Store:
    """The files of a server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("checkpoints", "runs", "samplers"):
            (directory / name).mkdir(parents=True, exist_ok=True)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def folder(self, path: CheckpointPath) -> Path:
        return self.directory / "checkpoints" / path.run / path.kind / path.name

    def save(
        self,
        path: CheckpointPath,
        weights: Mapping[str, Any],
        optimizer: Mapping[str, Any] | None,
        about: Mapping[str, Any],
        *,
        overwrite: bool = True,
    ) -> None:
        """Write a checkpoint atomically.

        Raises:
            UsageError: it exists and `overwrite` is false.
        """
        final = self.folder(path)
        if final.exists() and not overwrite:
            raise UsageError(
                f"{path} already exists", fix="choose another name, or save with overwrite=True", see="output-file"
            )
        growing = final.with_name(f".{final.name}")
        shutil.rmtree(growing, ignore_errors=True)
        growing.mkdir(parents=True)
        write_tensors(growing / _WEIGHTS, weights)
        if optimizer is not None:
            write_tensors(growing / _OPTIMIZER, optimizer)
        (growing / _ABOUT).write_text(json.dumps(dict(about)), encoding="utf-8")
        replace_directory(growing, final)

    def about(self, path: CheckpointPath) -> Mapping[str, Any]:
        """Metadata of a checkpoint, see `Checkpoint.about`.

        Raises:
            UsageError: the checkpoint does not exist or has expired.
        """
        try:
            found: dict[str, Any] = json.loads((self.folder(path) / _ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"there is no checkpoint {path}") from error
        if found["expires"] is not None and found["expires"] < time.time():
            raise UsageError(f"the checkpoint {path} has expired")
        return found

    def load(self, path: CheckpointPath, *, optimizer: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The weights, and with `optimizer` the optimizer state.

        Raises:
            UsageError: the checkpoint does not exist, has expired, is damaged, or has no optimizer state.
        """
        self.about(path)
        folder = self.folder(path)
        if optimizer and not (folder / _OPTIMIZER).exists():
            raise UsageError(f"{path} has no optimizer state: only paths with /weights/ have one")
        try:
            weights = read_tensors(folder / _WEIGHTS)
            return weights, read_tensors(folder / _OPTIMIZER) if optimizer else None
        except Exception as error:
            raise UsageError(f"the checkpoint {path} is damaged: {error}") from error

    def delete(self, path: CheckpointPath) -> bool:
        """Remove a checkpoint; True if it existed."""
        try:
            remove_directory(self.folder(path))
        except FileNotFoundError:
            return False
        return True

    def set_expiry(self, path: CheckpointPath, expires: float | None) -> None:
        about = dict(self.about(path)) | {"expires": expires}
        _replace(self.folder(path) / _ABOUT, json.dumps(about))

    def checkpoints(self, run: str | None = None) -> Iterator[Checkpoint]:
        """The checkpoints that have not expired, sorted by run, kind and name."""
        for folder in sorted((self.directory / "checkpoints").glob(f"{run or '*'}/*/*")):
            if folder.name.startswith(".") or folder.parent.name not in KINDS:
                continue
            path = CheckpointPath.parse(f"tinker://{folder.parts[-3]}/{folder.parts[-2]}/{folder.name}")
            try:
                about = self.about(path)
            except UsageError:
                continue
            yield Checkpoint(path, about, sum(file.stat().st_size for file in folder.iterdir()))

    def sweep(self) -> None:
        """Remove expired checkpoints, and incomplete ones after a crash."""
        for folder in (self.directory / "checkpoints").glob("*/*/*"):
            try:
                self.about(CheckpointPath.parse(f"tinker://{folder.parts[-3]}/{folder.parts[-2]}/{folder.name}"))
            except UsageError:
                shutil.rmtree(folder, ignore_errors=True)

    # --- runs and sampling sessions -------------------------------------------------------------------------------

    def put(self, kind: Literal["runs", "samplers"], name: str, about: Mapping[str, Any]) -> None:
        _replace(self.directory / kind / f"{_checked(name)}.json", json.dumps(dict(about)))

    def get(self, kind: Literal["runs", "samplers"], name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(
                (self.directory / kind / f"{_checked(name)}.json").read_text(encoding="utf-8")
            )
        except FileNotFoundError:
            return None
        return found

    def forget_samplers(self, session: str) -> None:
        """Remove the sampling sessions of a session that has ended."""
        for path in (self.directory / "samplers").glob(f"{_checked(session)}:sample:*.json"):
            path.unlink(missing_ok=True)

    def names(self, kind: Literal["runs", "samplers"]) -> list[str]:
        return sorted(path.stem for path in (self.directory / kind).glob("*.json"))


def _checked(name: str) -> str:
    """`name`, if it is safe as a file name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name: use letters, digits, and . _ : - after the first character")
    return name


def _replace(path: Path, text: str) -> None:
    write_atomically(path, text)
    sync_to_disk(path.parent)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
