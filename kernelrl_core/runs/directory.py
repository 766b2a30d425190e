"""A run directory: its files, lock and state.

runs/NAME/
  recipe.yaml  provenance.json  secret.key  state.json  lock
  samples.jsonl  credits.jsonl  metrics.jsonl  checkpoints.jsonl  eval_samples.jsonl  begun.jsonl
  logs.log  checkpoints/NNNNNN/  origin/
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from kernelrl_core.errors import KernelRLError, LookupFailed, StorageError, UsageError, suggestion
from kernelrl_core.runs.journal import read_rows
from kernelrl_core.runs.row_shapes import PROGRESS, fault
from kernelrl_core.sources.yaml import dump
from kernelrl_core.storage import FileLock, disk_error, is_locked, write_atomically
from kernelrl_core.types import sha256_text
from kernelrl_core.version import __version__

__all__ = ["JOURNALS", "RunDir", "State", "default_name", "find_run", "list_runs", "named_path", "recipe_text"]

State = Literal["running", "finished", "stopped", "failed", "killed"]
"""State of a run."""

JOURNALS = ("samples", "credits", "metrics", "checkpoints", "eval_samples", "begun")
"""Names of the journals, which are created with the run directory."""


_SHORT_ERROR = 1000
"""Characters of an error in a state that is written to a full disk."""


class RunDir:
    """An existing run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: FileLock | None = None
        # The progress is recorded in a thread; a late record must not replace the final state.
        self._writing, self._ended = threading.Lock(), False

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.path.name

    @property
    def word(self) -> str:
        """The path as one word of a shell command, for messages."""
        return shlex.quote(str(self.path))

    def journal_path(self, name: str) -> Path:
        """File of a journal, such as `samples`."""
        return self.path / f"{name}.jsonl"

    def each_row(self, name: str) -> Iterator[dict[str, Any]]:
        """Iterate over the rows of a journal; see `rows`."""
        return read_rows(self.journal_path(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a journal.

        Raises:
            KernelRLError: the file cannot be read, or a line before the last is damaged.
        """
        return list(read_rows(self.journal_path(name)))

    def steps_after(self, step: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The metrics row and the credit rows of each finished step after `step`; see `rows`."""
        credits_ = groupby((row for row in self.each_row("credits") if row["step"] > step), key=itemgetter("step"))
        for row in self.each_row("metrics"):
            if row["step"] > step:
                yield row, next((list(rows) for number, rows in credits_ if number == row["step"]), [])

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / "checkpoints"

    def origin(self) -> tuple[Mapping[str, Any], Path] | None:
        """State and files of the checkpoint whose weights the run began with; None: the policy's initial weights."""
        found = self.provenance().get("origin")
        return None if found is None else (found["policy"], self.path / "origin")

    @classmethod
    def create(
        cls, path: Path, resolved: Mapping[str, Any], provenance: dict[str, Any], origin: Path | None = None
    ) -> RunDir:
        """Create a run directory with its first files, and lock it.

        Replaces a run that ended before it recorded anything.

        Args:
            provenance: content of provenance.json. `origin` describes the checkpoint that the run begins with.
            origin: files of that checkpoint, which are copied.

        Raises:
            UsageError: the directory exists.
            KernelRLError: the directory cannot be written.
        """
        earlier = cls(path)
        if path.exists() and not earlier.blank():
            raise UsageError(
                f"run directory {path} already exists",
                fix=f"kernelrl resume {earlier.word}, or choose another --name",
                see="run-exists",
            )
        # Created under another name and renamed, so that a crash leaves a complete run directory or none.
        growing = cls(path.with_name(f".{path.name}.{os.getpid()}"))
        try:
            growing.path.mkdir(parents=True)
            growing.lock()
            growing._fill(resolved, provenance)
            if origin is not None:
                shutil.copytree(origin, growing.path / "origin")
            if path.exists():
                earlier.lock()
                shutil.rmtree(path)
            os.rename(growing.path, path)
        except (OSError, StorageError) as error:
            cause = error.__cause__ if isinstance(error, StorageError) else error
            raise disk_error(path, cause if isinstance(cause, OSError) else OSError(str(error))) from error
        finally:
            earlier.unlock()
            shutil.rmtree(growing.path, ignore_errors=True)
        growing.path = path
        return growing

    def _fill(self, resolved: Mapping[str, Any], provenance: dict[str, Any]) -> None:
        self.checkpoints.mkdir()
        for name in JOURNALS:
            self.journal_path(name).touch()
        (self.path / "logs.log").touch()
        text = recipe_text(resolved)
        self._write("secret.key", _new_secret().hex() + "\n", mode=0o600)
        self._write("recipe.yaml", text)
        self._write_provenance({**provenance, "recipe_sha256": sha256_text(text)})
        self.set_state("running")

    def lock(self) -> None:
        """Lock the run for this process. The lock ends with the process.

        Raises:
            UsageError: another process holds the lock.
        """
        try:
            self._lock = FileLock(self.path / "lock", wait=False)
        except BlockingIOError:
            raise UsageError(
                f"run {self.path} is in use by another process", fix=f"kernelrl status {self.word}", see="run-in-use"
            ) from None
        except OSError as error:
            raise disk_error(self.path / "lock", error) from error

    def unlock(self) -> None:
        """Release the lock, if this object holds it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def secret(self) -> bytes:
        """The key from which the seeds of the judge's inputs are derived.

        Raises:
            KernelRLError: the file is missing or damaged.
        """
        try:
            return bytes.fromhex((self.path / "secret.key").read_text().strip())
        except (OSError, ValueError) as error:
            raise KernelRLError(
                f"{self.path / 'secret.key'} cannot be read: {error}",
                fix="restore it from a copy of the run",
                see="run-files",
            ) from error

    def provenance(self) -> dict[str, Any]:
        """Contents of provenance.json.

        Raises:
            KernelRLError: the file is missing or damaged.
        """
        try:
            found = json.loads((self.path / "provenance.json").read_text())
            if not isinstance(found, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise KernelRLError(
                f"{self.path / 'provenance.json'} cannot be read: {why}",
                fix="restore it from a copy of the run, or start a new one",
                see="run-files",
            ) from error
        return found

    def require_known_version(self) -> None:
        """Refuse a run of a newer minor version, whose files may have another layout.

        Raises:
            UsageError: a newer version of kernelrl wrote the run.
        """
        try:
            written = Version(json.loads((self.path / "provenance.json").read_text())["kernelrl"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if written.release[:2] > Version(__version__).release[:2]:
            raise UsageError(
                f"run {self.path} was written by kernelrl {written}, and this is {__version__}",
                fix=f"install kernelrl {written}: git pull, or pip install --upgrade kernelrl",
                see="run-version",
            )

    def recipe_changed(self) -> bool:
        """Whether recipe.yaml was edited after the run started."""
        try:
            text = (self.path / "recipe.yaml").read_text(encoding="utf-8")
        except OSError as error:
            raise disk_error(self.path / "recipe.yaml", error) from error
        return sha256_text(text) != self.provenance().get("recipe_sha256")

    def accept_recipe(self) -> None:
        """Accept an edited recipe.yaml, and record the hash of the former one in the provenance.

        A finished run counts as stopped from then on, because the changed recipe has more steps.
        """
        if self.state()[0] == "finished":
            self.set_state("stopped")
        text = (self.path / "recipe.yaml").read_text(encoding="utf-8")
        provenance = self.provenance()
        provenance["recipe_changes"] = [*provenance.get("recipe_changes", []), provenance["recipe_sha256"]]
        provenance["recipe_sha256"] = sha256_text(text)
        self._write_provenance(provenance)

    def replace_recipe(self, resolved: Mapping[str, Any]) -> None:
        """Replace recipe.yaml, and record the hash of the former one in the provenance."""
        self._write("recipe.yaml", recipe_text(resolved))
        self.accept_recipe()

    def _write_provenance(self, provenance: dict[str, Any]) -> None:
        self._write("provenance.json", json.dumps(provenance, indent=2, sort_keys=True) + "\n")

    def set_state(self, state: State, error: str = "", progress: Mapping[str, Any] | None = None) -> None:
        """Write the state of the run.

        Args:
            progress: progress of the phase in which the run stopped or failed.
        """
        entry: dict[str, Any] = {"state": state, "error": error, "pid": os.getpid(), "since": now()}
        if progress is not None:
            entry["progress"] = dict(progress)
        with self._writing:
            self._ended = state != "running"
            try:
                self._write("state.json", json.dumps(entry) + "\n")
            except StorageError:
                # A full disk has no space for a second file, but the present one keeps its block.
                entry = {**entry, "error": error[:_SHORT_ERROR]}
                entry.pop("progress", None)
                if not _overwrite(self.path / "state.json", json.dumps(entry) + "\n"):
                    raise

    def set_progress(self, facts: Mapping[str, Any]) -> None:
        """Record the progress of the running process beside its state. A disk error is ignored: it is no result."""
        entry = {"state": "running", "error": "", "pid": os.getpid(), "since": now(), "progress": dict(facts)}
        with suppress(OSError), self._writing:
            if not self._ended:
                write_atomically(self.path / "state.json", json.dumps(entry) + "\n", sync=False)

    def progress(self) -> dict[str, Any] | None:
        """The last progress that a process has recorded: that of the present phase, or of the phase in which the run
        stopped, failed or was killed. None if there is none."""
        try:
            entry = json.loads((self.path / "state.json").read_text())
        except (OSError, ValueError):
            return None
        found = entry.get("progress") if isinstance(entry, dict) else None
        return found if isinstance(found, dict) and not fault(found, PROGRESS) else None

    def set_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Record what a run that trains nothing has found: label and value of each line for the user."""
        self._write("facts.json", json.dumps(list(facts)) + "\n")

    def facts(self) -> list[tuple[str, str]]:
        """The lines that `set_facts` has recorded; empty for a training run."""
        try:
            found = json.loads((self.path / "facts.json").read_text())
            return [(str(label), str(value)) for label, value in found]
        except (OSError, ValueError, TypeError):
            return []

    def state(self) -> tuple[State, str]:
        """State of the run, and its last error. State `running` without a lock means that the process was killed."""
        try:
            entry = json.loads((self.path / "state.json").read_text())
            state: State = entry["state"]
            message = str(entry.get("error", ""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "killed", ""
        if self._lock is None and self.locked():
            return "running", ""
        return ("killed" if state == "running" and self._lock is None else state), message

    def blank(self) -> bool:
        """Whether the run ended before it recorded a sample, a step or a checkpoint."""
        if not (self.path / "recipe.yaml").is_file() or self.state()[0] in ("running", "finished"):
            return False
        return not any(
            path.exists() and path.stat().st_size for path in map(self.journal_path, JOURNALS) if path.stem != "begun"
        )

    def locked(self) -> bool:
        """Whether a process holds the lock of the run."""
        return is_locked(self.path / "lock")

    def _write(self, name: str, text: str, *, mode: int = 0o644) -> None:
        try:
            write_atomically(self.path / name, text, mode=mode)
        except OSError as error:
            raise disk_error(self.path / name, error) from error


def _overwrite(path: Path, text: str) -> bool:
    """Replace the content of an existing file in place. Not atomic. False if that fails, too."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            file.write(text)
            file.truncate()
    except OSError:
        return False
    return True


def recipe_text(resolved: Mapping[str, Any]) -> str:
    """Content of a run's recipe.yaml."""
    return dump(dict(resolved))


def default_name(stem: str) -> str:
    """Default name of a run: recipe name and UTC time stamp."""
    return f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def named_path(name: str) -> Path:
    """Directory of a new run with a name that the user has chosen.

    Raises:
        UsageError: the name is no name of a directory below `./runs`.
    """
    if Path(name).name != name or not name or name[0] in ".-":
        raise UsageError(f"--name {name!r} must be a directory name without path separators, leading dot or hyphen")
    return Path("runs") / name


def find_run(name: str, *, damaged: bool = False) -> RunDir:
    """The run at a path, or with a name below `./runs`.

    Args:
        damaged: also find a run whose recipe is missing, or that a newer version wrote.

    Raises:
        LookupFailed: there is none; the message names the nearest run.
        UsageError: its recipe is missing, or a newer version of kernelrl wrote it.
    """
    for path in (Path(name), Path("runs") / name):
        if (path / "recipe.yaml").is_file():
            if not damaged:
                RunDir(path).require_known_version()
            return RunDir(path)
    for path in (Path(name), Path("runs") / name):
        if _is_run(path):
            if damaged:
                return RunDir(path)
            raise UsageError(
                f"run {path} has no recipe.yaml",
                fix="restore it from a copy of the run, or delete the directory",
                see="run-files",
            )
    runs = [run.name for run in list_runs()]
    if not runs:
        raise LookupFailed(
            f"no run {name!r}: this directory has no runs",
            fix="change to the directory in which the run was started, or start one: kernelrl run RECIPE",
        )
    hint = suggestion(Path(name).name, runs)
    raise LookupFailed(
        f"no run {name!r}: no run directory has this path or this name below runs/; {hint}", fix="kernelrl runs list"
    )


def list_runs(directory: Path = Path("runs")) -> list[RunDir]:
    """The runs below a directory, oldest first."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.glob("[!.]*") if (path / "recipe.yaml").is_file() or _is_run(path)]

    def age(path: Path) -> tuple[float, Path]:
        recipe = path / "recipe.yaml"
        return (recipe if recipe.exists() else path).stat().st_mtime, path

    return [RunDir(path) for path in sorted(found, key=age)]


def _is_run(path: Path) -> bool:
    """Whether a directory is a run, also if its recipe is missing."""
    return (path / "provenance.json").is_file() or (path / "samples.jsonl").is_file()


def now() -> str:
    """UTC time stamp to the second."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _new_secret() -> bytes:
    given = os.environ.get("KERNELRL_RUN_SECRET", "")
    if not given:
        return secrets.token_bytes(32)
    if not re.fullmatch(r"([0-9a-fA-F]{2}){16,64}", given):
        raise UsageError("KERNELRL_RUN_SECRET must be 16 to 64 bytes in hexadecimal")
    return bytes.fromhex(given)
