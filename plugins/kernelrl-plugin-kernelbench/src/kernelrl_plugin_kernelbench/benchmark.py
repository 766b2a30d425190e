"""KernelBench's problems as tasks, from a clone or from the hub."""

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
class Problem:
    """A problem before its text is checked."""

    level: int
    number: int
    name: str
    source: str
    where: str

    @property
    def id(self) -> str:
        return _id(self.level, self.number)


class KernelBenchTasks(LazyCollection):
    """Problems of KernelBench; ids are `kernelbench/LEVEL/NUMBER`."""

    def __init__(self, config: KernelBenchConfig) -> None:
        super().__init__()
        self._config = config

    def _read(self) -> Collection:
        problems, origin = self._problems()
        everything = {problem.id for problem in problems}
        chosen = [problem for problem in problems if self._takes_part(problem)]
        self._refuse_unknown(everything)
        chosen.sort(key=lambda problem: (problem.level, problem.number))
        found = [Found(Task(id=p.id, reference=p.source, level=p.level, name=p.name), p.where) for p in chosen]
        origin = {**origin, "holdout": _plain(self._config.holdout)}
        return collect(found, self._held_out, origin, self._config.audit or _AUDIT)

    def _takes_part(self, problem: Problem) -> bool:
        config = self._config
        return (
            (config.start is None or problem.number >= config.start)
            and (config.end is None or problem.number <= config.end)
            and (config.numbers is None or problem.number in config.numbers.of(problem.level))
        )

    def _held_out(self, tasks: Sequence[Task]) -> set[str]:
        holdout = self._config.holdout
        if isinstance(holdout, FractionHoldout):
            return by_fraction(tasks, holdout.fraction, holdout.seed)
        if holdout == "none":
            return set()
        numbers = KEVIN if holdout == "kevin" else holdout
        return {_id(level, number) for level in self._config.levels for number in numbers.of(level)}

    def _refuse_unknown(self, everything: set[str]) -> None:
        """Refuse numbers, given in the recipe, that no problem has."""
        named = {"numbers": self._config.numbers, "holdout": self._config.holdout}
        problems = []
        for key, numbers in named.items():
            if numbers is None or isinstance(numbers, str | FractionHoldout):
                continue
            for level in (1, 2, 3, 4):
                lacking = [n for n in numbers.of(level) if _id(level, n) not in everything]
                if level in self._config.levels and lacking:
                    problems.append(f"kernelbench: {key}: level {level} has no problem {', '.join(map(str, lacking))}")
                elif numbers.of(level) and level not in self._config.levels:
                    taking_part = ", ".join(map(str, self._config.levels))
                    problems.append(f"kernelbench: {key}: level {level} takes no part (levels: {taking_part})")
        refuse(problems)

    def _problems(self) -> tuple[list[Problem], dict[str, Any]]:
        config = self._config
        if config.source == "hub":
            return self._from_hub()
        try:
            return self._from_clone()
        except MissingPrerequisite:
            if config.source == "auto" and config.revision is not None:
                return self._from_hub()
            raise

    def _from_clone(self) -> tuple[list[Problem], dict[str, Any]]:
        folder = find_clone(self._config.root)
        found: list[Problem] = []
        problems: list[str] = []
        for level in sorted(set(self._config.levels)):
            directory = folder / f"level{level}"
            if not directory.is_dir():
                problems.append(f"kernelbench: {folder} has no level {level}")
                continue
            for path in sorted(directory.glob("*.py")):
                number = _number(path.name)
                if number is None:
                    problems.append(f"{path}: the name of a problem begins with its number, such as 19_ReLU.py")
                    continue
                try:
                    found.append(Problem(level, number, path.stem, read_text(path), str(path)))
                except UsageError as error:
                    problems.append(error.message)
        refuse(problems)
        return found, {"source": "kernelbench", "searched": str(folder), "commit": commit_of(folder)}

    def _from_hub(self) -> tuple[list[Problem], dict[str, Any]]:
        config = self._config
        assert config.revision is not None
        found = list(_from_rows(config.hub, config.revision, sorted(set(config.levels))))
        return found, {"source": "kernelbench", "searched": config.hub, "revision": config.revision}


def _from_rows(hub: str, revision: str, levels: Sequence[int]) -> Iterator[Problem]:
    for level in levels:
        for where, row in hub_rows(hub, revision, None, f"level_{level}"):
            lacking = [column for column in ("code", "name") if not isinstance(row.get(column), str)]
            number = row.get("problem_id") or _number(str(row.get("name")))
            if lacking or not isinstance(number, int):
                what = ", ".join(lacking) or "problem_id"
                raise UsageError(f"{where}: not laid out like KernelBench: no {what}")
            yield Problem(level, number, row["name"].removesuffix(".py"), row["code"], where)


def _number(name: str) -> int | None:
    match = re.match(r"(\d+)_", name)
    return int(match[1]) if match else None


def _id(level: int, number: int) -> str:
    return f"kernelbench/{level}/{number}"


def _plain(holdout: Any) -> Any:
    return holdout if isinstance(holdout, str) else attrs.asdict(holdout)
