"""The tasks of KernelBench, from a clone or from the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_kernelbench.clone import commit_of, find_clone
from kernelrl_plugin_kernelbench.collection import Collection, Found, LazyCollection, collect, refuse
from kernelrl_plugin_kernelbench.config import FractionHoldout, KernelBenchConfig
from kernelrl_plugin_kernelbench.directory import read_text
from kernelrl_plugin_kernelbench.holdout import KEVIN, by_fraction
from kernelrl_plugin_kernelbench.rows import hub_rows

__all__ = ["KernelBenchTasks"]

_AUDIT = Path(__file__).with_name("audit.jsonl")


@attrs.frozen
class Entry:
    """An entry of KernelBench, whose source is not checked yet."""

    level: int
    number: int
    name: str
    source: str
    where: str

    @property
    def id(self) -> str:
        return _id(self.level, self.number)


class KernelBenchTasks(LazyCollection):
    """The tasks of KernelBench; ids are `kernelbench/LEVEL/NUMBER`."""

    def __init__(self, config: KernelBenchConfig) -> None:
        super().__init__()
        self._config = config

    def _read(self) -> Collection:
        entries, origin = self._entries()
        known = {entry.id for entry in entries}
        chosen = [entry for entry in entries if self._is_selected(entry)]
        self._refuse_unknown(known)
        chosen.sort(key=lambda entry: (entry.level, entry.number))
        found = [Found(Task(id=e.id, reference=e.source, level=e.level, name=e.name), e.where) for e in chosen]
        origin = {**origin, "holdout": _plain(self._config.holdout)}
        return collect(found, self._held_out, origin, self._config.audit or _AUDIT)

    def _is_selected(self, entry: Entry) -> bool:
        config = self._config
        return (
            (config.start is None or entry.number >= config.start)
            and (config.end is None or entry.number <= config.end)
            and (config.numbers is None or entry.number in config.numbers.of(entry.level))
        )

    def _held_out(self, tasks: Sequence[Task]) -> set[str]:
        holdout = self._config.holdout
        if isinstance(holdout, FractionHoldout):
            return by_fraction(tasks, holdout.fraction, holdout.seed)
        if holdout == "none":
            return set()
        numbers = KEVIN if holdout == "kevin" else holdout
        return {_id(level, number) for level in self._config.levels for number in numbers.of(level)}

    def _refuse_unknown(self, known: set[str]) -> None:
        """Refuse task numbers in the recipe that do not exist."""
        named = {"numbers": self._config.numbers, "holdout": self._config.holdout}
        problems = []
        for key, numbers in named.items():
            if numbers is None or isinstance(numbers, str | FractionHoldout):
                continue
            for level in (1, 2, 3, 4):
                missing = [n for n in numbers.of(level) if _id(level, n) not in known]
                if level in self._config.levels and missing:
                    problems.append(f"kernelbench: {key}: level {level} has no task {', '.join(map(str, missing))}")
                elif numbers.of(level) and level not in self._config.levels:
                    selected = ", ".join(map(str, self._config.levels))
                    problems.append(f"kernelbench: {key}: level {level} is not selected (levels: {selected})")
        refuse(problems)

    def _entries(self) -> tuple[list[Entry], dict[str, Any]]:
        config = self._config
        if config.source == "hub":
            return self._from_hub()
        try:
            return self._from_clone()
        except MissingPrerequisite:
            if config.source == "auto" and config.revision is not None:
                return self._from_hub()
            raise

    def _from_clone(self) -> tuple[list[Entry], dict[str, Any]]:
        folder = find_clone(self._config.root)
        found: list[Entry] = []
        problems: list[str] = []
        for level in sorted(set(self._config.levels)):
            directory = folder / f"level{level}"
            if not directory.is_dir():
                problems.append(f"kernelbench: {folder} has no level {level}")
                continue
            for path in sorted(directory.glob("*.py")):
                number = _number(path.name)
                if number is None:
                    problems.append(f"{path}: the file name must begin with the task's number, such as 19_ReLU.py")
                    continue
                try:
                    found.append(Entry(level, number, path.stem, read_text(path), str(path)))
                except UsageError as error:
                    problems.append(error.message)
        refuse(problems)
        return found, {"source": "kernelbench", "searched": str(folder), "commit": commit_of(folder)}

    def _from_hub(self) -> tuple[list[Entry], dict[str, Any]]:
        config = self._config
        assert config.revision is not None
        found = list(_from_rows(config.hub, config.revision, sorted(set(config.levels))))
        return found, {"source": "kernelbench", "searched": config.hub, "revision": config.revision}


def _from_rows(hub: str, revision: str, levels: Sequence[int]) -> Iterator[Entry]:
    for level in levels:
        for where, row in hub_rows(hub, revision, None, f"level_{level}"):
            missing = [column for column in ("code", "name") if not isinstance(row.get(column), str)]
            number = row.get("problem_id") or _number(str(row.get("name")))
            if missing or not isinstance(number, int):
                columns = ", ".join(missing) or "problem_id"
                raise UsageError(f"{where}: not in the format of KernelBench: no {columns}")
            yield Entry(level, number, row["name"].removesuffix(".py"), row["code"], where)


def _number(name: str) -> int | None:
    match = re.match(r"(\d+)_", name)
    return int(match[1]) if match else None


def _id(level: int, number: int) -> str:
    return f"kernelbench/{level}/{number}"


def _plain(holdout: Any) -> Any:
    return holdout if isinstance(holdout, str) else attrs.asdict(holdout)
