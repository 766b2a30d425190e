"""Suites: many kernels, each with its task. `kernelrl check --suite`, `kernelrl lab --suite` and `kernelrl eval
--kernels` read them.

| suite | pairs |
|---|---|
| a folder with `task.py`, in it or below | every other kernel file beside a `task.py` is for that task |
| a folder with `tasks/` and `kernels/` | `kernels/NAME.py` and the files of `kernels/NAME/` are for `tasks/NAME.py` |
| another folder | `TASK.py` is for the task of a source with this id, last part of the id, or name |
| a YAML file | list `kernels`; see `_read_file` |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from kernelrl_core.errors import KernelRLError, UsageError, nearest_path, suggestion
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.sources.kernel_files import KERNEL_SUFFIXES, KernelReader, kernel_files
from kernelrl_core.sources.yaml import Document, YamlProblem, parse
from kernelrl_core.tasks.lookup import find_task
from kernelrl_core.tasks.selection import listed
from kernelrl_core.types import Task

__all__ = ["BrokenPair", "SuitePair", "read_suite"]

Sources: TypeAlias = Callable[[], Sequence[TaskSource]]

TASK_FILE = "task.py"
_NAMED = 5
"""Tasks that an error names."""
_KEYS = ("task", "kernel", "backend", "function")
"""Keys of an entry of a YAML file."""


@attrs.frozen
class SuitePair:
    """A kernel of a suite, with its task."""

    task: Task
    """The task. In a suite with `task.py`, its id is that folder within the suite."""
    file: str
    """File of the kernel."""
    text: str
    """Its text: Python source or a saved reply."""
    backend: str = ""
    """Kernel language that the suite states; empty: it states none."""
    sample: int | None = None
    """Index of the sample; None unless a tool numbers the kernels of a task in their names."""
    task_file: str = ""
    """File of the task; empty if a task source has it."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files of kernel and task."""
        return tuple(filter(None, (self.file, self.task_file)))


@attrs.frozen
class BrokenPair:
    """A task or a kernel of a suite that cannot be read."""

    id: str
    """Folder of the task within the suite, with `/` and the stem of the kernel's file; or the file."""
    message: str
    """The problem, with its place."""


def read_suite(
    path: Path, *, registry: Registry, sources: Sources | None = None, reader: KernelReader | None = None
) -> tuple[list[SuitePair], list[BrokenPair]]:
    """The kernels of a suite in a stable order, and what cannot be read.

    Args:
        sources: gives task sources for files that are named by the id of their task; None: there are none.
        reader: reads the kernels; None: one without a package.

    Raises:
        UsageError: the suite has none of the known structures, or its YAML file cannot be read.
    """
    pairs: list[SuitePair] = []
    broken: list[BrokenPair] = []
    reader = reader or KernelReader()
    for found in _entries(path, registry, sources):
        if isinstance(found, BrokenPair):
            broken.append(found)
            continue
        try:
            text = reader.read(found.file, found.function)
        except KernelRLError as error:
            place = f"{found.place}: " if found.place else ""
            broken.append(BrokenPair(found.id, f"{place}{error.message}"))
        else:
            pairs.append(
                SuitePair(found.task, found.file, text, found.backend, found.sample, task_file=found.task_file)
            )
    return pairs, broken


@attrs.frozen
class _Entry:
    """A kernel of a suite that is not read yet."""

    task: Task
    file: str
    id: str
    """Of the `BrokenPair`, if it cannot be read."""
    task_file: str = ""
    backend: str = ""
    function: str = ""
    sample: int | None = None
    place: str = ""
    """Line of a YAML file."""


def _entries(path: Path, registry: Registry, sources: Sources | None) -> Iterator[_Entry | BrokenPair]:
    if not path.exists():
        raise UsageError(
            f"--suite {path}: no such directory or file{nearest_path(path)}",
            fix="write one: kernels: [{task: TASK, kernel: KERNEL}]",
            see="kernel-files",
        )
    if not path.is_dir():
        yield from _read_file(path, registry)
        return
    places = sorted(found.parent for found in path.rglob(TASK_FILE))
    if places:
        for place in places:
            yield from _beside(place, path, registry)
    elif (path / "tasks").is_dir() and (path / "kernels").is_dir():
        yield from _by_folders(path, registry)
    elif sources is not None:
        yield from _by_task_names(path, sources())
    else:
        raise UsageError(
            f"{path}: no {TASK_FILE} in the directory or below it, and no tasks/ with kernels/",
            fix="one directory per task, with task.py and its kernels",
            see="kernel-files",
        )


# --- a folder with task.py ------------------------------------------------------------------------------------------


def _beside(place: Path, suite: Path, registry: Registry) -> Iterator[_Entry | BrokenPair]:
    """The kernels beside a `task.py`."""
    id_ = place.relative_to(suite).as_posix() if place != suite else place.resolve().name
    try:
        task = attrs.evolve(find_task(str(place / TASK_FILE), registry=registry), id=id_)
        names = [name for name in kernel_files([str(place)]) if Path(name).name != TASK_FILE]
        if not names:
            raise UsageError(f"{place}: no kernel beside {TASK_FILE}")
    except KernelRLError as error:
        yield BrokenPair(id_, error.message)
        return
    for name in names:
        yield _Entry(task, name, f"{id_}/{Path(name).stem}", str(place / TASK_FILE))


# --- folders tasks/ and kernels/ ------------------------------------------------------------------------------------


def _by_folders(suite: Path, registry: Registry) -> Iterator[_Entry | BrokenPair]:
    """The kernels of `kernels/`, for the tasks of equal names in `tasks/`."""
    tasks: dict[str, Task | BrokenPair] = {}
    for file in sorted((suite / "tasks").rglob("*.py")):
        if file.name[0] in "._":
            continue
        name = file.relative_to(suite / "tasks").with_suffix("").as_posix()
        try:
            tasks[name] = attrs.evolve(find_task(str(file), registry=registry), id=name)
        except KernelRLError as error:
            tasks[name] = BrokenPair(name, error.message)
            yield BrokenPair(name, error.message)
    files = _kernel_files(suite / "kernels")
    if not files:
        raise UsageError(f"{suite / 'kernels'}: the directory has no file *.py", see="kernel-files")
    for file in files:
        name = file.relative_to(suite / "kernels").with_suffix("").as_posix()
        task = tasks.get(name) or tasks.get(name.rpartition("/")[0])
        if task is None:
            lacking = f"{file}: no task {suite / 'tasks' / f'{name}.py'}; {suggestion(name, tasks)}"
            yield BrokenPair(name, lacking)
        elif isinstance(task, Task):
            yield _Entry(task, str(file), name, str(suite / "tasks" / f"{task.id}.py"))


def _kernel_files(folder: Path) -> list[Path]:
    """The kernel files in a folder and below it."""
    found = (path for path in folder.rglob("*") if path.suffix in KERNEL_SUFFIXES and path.name[0] not in "._")
    return sorted(path for path in found if path.is_file())


# --- a folder with files that are named by their tasks ---------------------------------------------------------------


def _by_task_names(folder: Path, sources: Sequence[TaskSource]) -> Iterator[_Entry | BrokenPair]:
    files = _kernel_files(folder)
    if not files:
        raise UsageError(f"{folder}: the directory has no file *.py", see="kernel-files")
    tasks = [task for source in sources for split in source.splits() for task in listed(source, split)]
    by_id = {task.id: task for task in tasks}
    names = _names(tasks)
    taken: dict[tuple[str, int | None], Path] = {}
    for path in files:
        try:
            task, sample = _task_of(path, folder, sources, by_id, names)
        except UsageError as error:
            yield BrokenPair(path.relative_to(folder).as_posix(), error.message)
            continue
        other = taken.setdefault((task.id, sample), path)
        if other != path:
            message = f"{path} and {other} are both for task {task.id}; remove one of them"
            yield BrokenPair(path.relative_to(folder).as_posix(), message)
            continue
        yield _Entry(task, str(path), str(path), sample=sample)


def _task_of(
    path: Path,
    folder: Path,
    sources: Sequence[TaskSource],
    by_id: Mapping[str, Task],
    names: Mapping[str, Sequence[Task]],
) -> tuple[Task, int | None]:
    """Task of a file, and index of the sample.

    Raises:
        UsageError: there is no such task, or there are several.
        KernelRLError: a task source failed.
    """
    for source in sources:
        label = f"task source {type(source).__module__}:{type(source).__qualname__}"
        with plugin_boundary(label, f"reading the name {path.name!r}"):
            try:
                named = source.task_of_file(path.name)
            except UsageError as error:
                raise UsageError(f"{path} fits no task; {error.message}") from error
            if named is not None:
                return by_id[named[0]], int(named[1])
    inside = path.relative_to(folder).with_suffix("").as_posix()
    fitting = names.get(inside) or names.get(path.stem) or []
    if not fitting:
        raise UsageError(f"{path} fits no task; {suggestion(path.stem, names)}")
    if len(fitting) > 1:
        ids = ", ".join(task.id for task in fitting[:_NAMED])
        better = folder / f"{fitting[0].id}.py"
        raise UsageError(f"{path} fits {len(fitting)} tasks: {ids}; name it by the id of its task: {better}")
    return fitting[0], None


def _names(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """Name of a kernel file without suffix -> its possible tasks."""
    found: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        for name in dict.fromkeys((task.id, task.id.rpartition("/")[2], task.name)):
            if name:
                found[name].append(task)
    return found


# --- a YAML file ------------------------------------------------------------------------------------------------------


def _read_file(path: Path, registry: Registry) -> Iterator[_Entry | BrokenPair]:
    """The pairs of a YAML file, whose paths are relative to its directory:

    kernels:
      - {task: tasks/softmax.py, kernel: kernels/softmax.py}
      - {task: starter/2/softmax, kernel: [a.py, b.cpp], backend: cpp, function: softmax}
    """
    document = _document(path)
    for index, entry in enumerate(document.data["kernels"]):
        place = f"{path}:{document.lines['kernels', str(index)]}"
        try:
            task_name, files, backend, function = _entry(entry, place)
            task = _task(path.parent, task_name, place, registry)
        except KernelRLError as error:
            yield BrokenPair(place, error.message)
            continue
        for file in files:
            kernel = str(path.parent / file)
            yield _Entry(task, kernel, place, str(path.parent / task_name), backend, function, place=place)


def _document(path: Path) -> Document:
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", see="kernel-files") from None
    except YamlProblem as problem:
        raise UsageError(f"{path}:{problem.line or 1}: {problem.message}", see="kernel-files") from problem
    data = document.data
    entries = data.get("kernels") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}:1: no list 'kernels' with entries such as {_SAMPLE}", see="kernel-files")
    for key in data:
        if key != "kernels":
            raise UsageError(f"{path}:{document.lines[str(key),]}: unknown key {key!r}; known: kernels")
    return document


_SAMPLE = "{task: softmax_task.py, kernel: softmax.py}"


def _entry(entry: Any, place: str) -> tuple[str, list[str], str, str]:
    """Task, kernel files, backend and function of an entry.

    Raises:
        UsageError: a key is missing, unknown or of another type.
    """
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: not an entry such as {_SAMPLE}")
    for key in entry:
        if key not in _KEYS:
            raise UsageError(f"{place}: unknown key {key!r}; {suggestion(str(key), _KEYS)}")
    for key in ("task", "kernel"):
        if not entry.get(key):
            raise UsageError(f"{place}: missing: {key}")
    files = entry["kernel"] if isinstance(entry["kernel"], list) else [entry["kernel"]]
    backend, function = entry.get("backend") or "", entry.get("function") or ""
    if not all(isinstance(text, str) for text in (entry["task"], *files, backend, function)):
        raise UsageError(f"{place}: all values are texts, such as {_SAMPLE}")
    return entry["task"], files, backend, function


def _task(folder: Path, name: str, place: str, registry: Registry) -> Task:
    """The task of an entry: a file, or an id.

    Raises:
        UsageError: there is neither.
    """
    file = folder / name
    try:
        if file.is_file() or file.suffix == ".py":
            task = find_task(str(file), registry=registry)
            return attrs.evolve(task, id=Path(name).with_suffix("").as_posix())
        return find_task(name, registry=registry)
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}") from error
