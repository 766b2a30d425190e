"""Task files below a directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernelrl_core.api.errors import UsageError, nearest_path
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_kernelbench.collection import Collection, Found, LazyCollection, collect, refuse
from kernelrl_plugin_kernelbench.config import DirectoryConfig
from kernelrl_plugin_kernelbench.holdout import held_out_ids

__all__ = ["DirectoryTasks", "read_text"]


class DirectoryTasks(LazyCollection):
    """The files that match a pattern as tasks; ids are `directory/` and the path without its suffix."""

    def __init__(self, config: DirectoryConfig) -> None:
        super().__init__()
        self._config = config

    def _read(self) -> Collection:
        root = self._config.path
        if not root.is_dir():
            reason = "not a directory" if root.exists() else f"no such directory{nearest_path(root)}"
            raise UsageError(f"directory: {root}: {reason}")
        try:
            paths = sorted(path for path in root.glob(self._config.glob) if path.is_file())
        except (ValueError, NotImplementedError) as error:
            raise UsageError(f"directory: glob {self._config.glob!r}: {error}") from error
        origin = {"source": "directory", "searched": f"{root}/{self._config.glob}"}
        return collect(
            _tasks(root, [path for path in paths if path.name != "__init__.py"]),
            lambda tasks: held_out_ids(tasks, self._config.holdout),
            origin,
            self._config.audit,
        )


def _tasks(root: Path, paths: list[Path]) -> Iterator[Found]:
    problems = []
    found = []
    for path in paths:
        inside = path.relative_to(root)
        try:
            text = read_text(path)
        except UsageError as error:
            problems.append(error.message)
            continue
        task = Task(
            id=f"directory/{inside.with_suffix('').as_posix()}", reference=text, level=_level(inside), name=path.stem
        )
        found.append(Found(task, str(path)))
    refuse(problems)
    yield from found


def read_text(path: Path) -> str:
    """Text of a UTF-8 file, without a byte order mark.

    Raises:
        UsageError: the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8") from error


def _level(path: Path) -> int | None:
    """Level from the innermost folder with a name such as `level2` or `level_2`; None without one."""
    for folder in reversed(path.parts[:-1]):
        if match := re.fullmatch(r"level[_-]?(\d+)", folder, re.IGNORECASE):
            return int(match[1])
    return None
