"""Corpora of this machine: demonstrations of tasks, earlier runs, and files in our own format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.evaluators import Outcome, sha256_text
from kernelrl_core.api.sources import parse_source
from kernelrl_plugin_raicl.corpora.corpus import Corpus, Filters
from kernelrl_plugin_raicl.corpora.published import checked_rows
from kernelrl_plugin_raicl.corpora.tables import LocalTable
from kernelrl_plugin_raicl.record import Record, Skipped

__all__ = ["FileCorpus", "RunsCorpus", "TasksCorpus"]

_COLUMNS = ("reference", "kernel", "backend")


class TasksCorpus(Corpus):
    """The correct demonstrations of a task source.

    Raises:
        LookupFailed: no plugin has this task source.
        UsageError: the task source needs options.
    """

    def __init__(self, source: str, filters: Filters) -> None:
        from kernelrl_core.api.components import component_block, registry

        self._source, self._filters = source, filters
        self._tasks = registry().make("tasks", component_block("tasks", {"use": source}, registry()))
        distribution = registry().plugin_of("tasks", source).dist
        self._licence = metadata.metadata(distribution).get("License-Expression", "")

    def records(self) -> Iterator[Record | Skipped]:
        origin = f"tasks:{self._source}"
        for split in self._tasks.splits():
            for task in self._tasks.tasks(split):
                if not self._filters.takes_level(task.level):
                    continue
                for number, shown in enumerate(self._tasks.demonstrations(task)):
                    is_wanted = self._filters.backend in ("", shown.backend)
                    correct = shown.outcome is Outcome.CORRECT and not shown.flaw
                    if is_wanted and (correct or self._filters.include_incorrect):
                        yield Record(
                            f"{origin}/{task.id}/{shown.backend}/{number}",
                            task.reference,
                            shown.source,
                            shown.backend,
                            name=task.id,
                            origin=origin,
                            level=task.level,
                            correct=correct,
                        )

    def manifest(self) -> Mapping[str, Any]:
        text = json.dumps(self._tasks.manifest(), sort_keys=True, default=str)
        revision = f"sha256:{sha256_text(text)[:16]}"
        return {"name": f"tasks:{self._source}", "revision": revision, "licence": self._licence, "source": self._source}


class RunsCorpus(Corpus):
    """The best clean samples of earlier runs, selected as `kernelrl distill` does.

    Raises:
        UsageError: there is no such run.
    """

    def __init__(self, runs: list[str], filters: Filters) -> None:
        from kernelrl_core.api.episodes import find_run

        if not runs:
            raise UsageError("corpus runs: names no run", fix="write runs:RUN or runs:RUN,RUN", see="arguments")
        self._runs = [find_run(run) for run in runs]
        self._filters = filters

    def records(self) -> Iterator[Record | Skipped]:
        for run in self._runs:
            yield from self._of_run(run)

    def _of_run(self, run: Any) -> Iterator[Record | Skipped]:
        from kernelrl_core.api.episodes import Choice, distill, load_recipe, registry, training_tasks

        recipe = load_recipe(str(run.path / "recipe.yaml"), registry=registry()).recipe
        tasks = {task.id: task for task in training_tasks(registry().make("tasks", recipe.tasks), recipe.train)[0]}
        chosen = {entry["sample"]: entry for entry in distill(run, Choice()).conversations}
        sources = {
            row["sample"]: row["extraction"]["candidate"]["source"]
            for row in run.each_row("samples")
            if row["sample"] in chosen and row["extraction"]["candidate"]
        }
        for sample, entry in chosen.items():
            id_ = f"runs:{run.name}/{sample}"
            task = tasks.get(entry["task_id"])
            if self._filters.backend not in ("", entry["backend"]):
                continue
            if task is None or task.sha256 != entry["task_sha256"]:
                yield Skipped(id_, "task has changed since the run", entry["task_id"])
            elif self._filters.takes_level(task.level):
                yield Record(
                    id_,
                    task.reference,
                    sources[sample],
                    entry["backend"],
                    name=task.id,
                    origin=f"runs:{run.name}",
                    level=task.level,
                    speedup=entry["speedup"],
                )

    def manifest(self) -> Mapping[str, Any]:
        texts = [run.journal_path("samples") for run in self._runs]
        try:
            hashes = [sha256_text(path.read_text(encoding="utf-8")) for path in texts]
        except OSError as error:
            raise KernelRLError(f"{error.filename}: cannot be read: {error.strerror}") from error
        names = ",".join(run.name for run in self._runs)
        revision = f"sha256:{sha256_text(' '.join(hashes))[:16]}"
        return {"name": f"runs:{names}", "revision": revision, "licence": "", "source": names}


class FileCorpus(Corpus):
    """Rows with the fields of a `Record`; `reference`, `kernel` and `backend` are required.

    Raises:
        UsageError: there is no such file.
    """

    def __init__(self, path: Path, filters: Filters) -> None:
        self._path, self._filters = path, filters
        self._table = LocalTable(path)

    def records(self) -> Iterator[Record | Skipped]:
        origin = f"{self._path.name}@{self._table.revision[:15]}"
        for item in checked_rows(self._path.name, self._table, _COLUMNS):
            record = item if isinstance(item, Skipped) else self._record(*item, origin)
            if isinstance(record, Skipped) or self._is_wanted(record):
                yield record

    def _record(self, number: int, row: Mapping[str, Any], origin: str) -> Record | Skipped:
        id_ = str(row.get("id") or f"{self._path.name}/{number}")
        for column in _COLUMNS:
            if not isinstance(row[column], str) or not row[column].strip():
                return Skipped(id_, "row without a source" if column != "backend" else "row without a backend", column)
        for column, needed in (("reference", "Model"), ("kernel", "ModelNew")):
            tree = parse_source(row[column])
            if tree is None or all(getattr(statement, "name", "") != needed for statement in tree.body):
                return Skipped(id_, f"{column} does not define {needed}")
        level, speedup, correct = row.get("level"), row.get("speedup"), row.get("correct", True)
        is_number = isinstance(speedup, int | float) and not isinstance(speedup, bool)
        if not isinstance(level, int | None) or not (speedup is None or is_number) or not isinstance(correct, bool):
            return Skipped(id_, "field of a wrong type", "level, speedup or correct")
        texts = {name: str(row.get(name) or "") for name in ("name", "licence")}
        own = str(row.get("origin") or origin)
        sources = row["reference"], row["kernel"], row["backend"]
        if not correct and not self._filters.include_incorrect:
            return Skipped(id_, "the corpus calls the kernel incorrect")
        return Record(id_, *sources, origin=own, level=level, speedup=speedup, correct=correct, **texts)

    def _is_wanted(self, record: Record) -> bool:
        return self._filters.backend in ("", record.backend) and self._filters.takes_level(record.level)

    def manifest(self) -> Mapping[str, Any]:
        path = str(self._path)
        return {"name": self._path.name, "revision": self._table.revision, "licence": "", "source": path}
