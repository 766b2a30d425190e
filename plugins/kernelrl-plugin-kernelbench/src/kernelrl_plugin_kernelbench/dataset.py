"""Rows of a data set as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelrl_core.api.errors import UsageError, suggestion
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_kernelbench.collection import TRAIN, Collection, Found, LazyCollection, collect, refuse
from kernelrl_plugin_kernelbench.config import DatasetConfig
from kernelrl_plugin_kernelbench.holdout import held_out_ids
from kernelrl_plugin_kernelbench.rows import Row, hub_rows, read_rows

__all__ = ["DatasetTasks"]

_DEFAULTS = {
    "reference": ("reference", "code"),
    "id": ("id",),
    "name": ("name",),
    "level": ("level",),
    "split": ("split",),
}
"""Part of a task -> default column names, in order of preference."""


class DatasetTasks(LazyCollection):
    """The rows of a file or of a hub data set as tasks; ids are `dataset/NAME/ROW_ID`."""

    def __init__(self, config: DatasetConfig) -> None:
        super().__init__()
        self._config = config

    def _read(self) -> Collection:
        config = self._config
        if config.path is not None:
            rows, name = read_rows(config.path), config.path.stem
            origin: dict[str, Any] = {"source": "dataset", "searched": str(config.path)}
        else:
            assert config.hub is not None
            assert config.revision is not None
            rows = hub_rows(config.hub, config.revision, config.subset, config.hub_split)
            name = config.hub.rpartition("/")[2]
            origin = {"source": "dataset", "searched": config.hub, "revision": config.revision}
        if not rows:
            raise UsageError(f"dataset: {origin['searched']} has no rows")
        columns = self._columns(rows)
        end = None if config.limit is None else config.offset + config.limit
        kept = [row for row in rows if all(row[1].get(key) == value for key, value in config.where.items())]
        found, problems = [], []
        for number, row in enumerate(kept[config.offset : end], config.offset):
            try:
                found.append(_task(row, columns, name, number))
            except UsageError as error:
                problems.append(error.message)
        refuse(problems)
        return collect(found, lambda tasks: held_out_ids(tasks, config.holdout), origin, config.audit)

    def _columns(self, rows: Sequence[Row]) -> dict[str, str]:
        """Part of a task -> name of its column.

        Raises:
            UsageError: a configured column does not exist, or there is no column with the reference.
        """
        known = {column for _, row in rows for column in row}
        columns: dict[str, str] = {}
        for part, defaults in _DEFAULTS.items():
            chosen = getattr(self._config.columns, part)
            if chosen is None:
                # With `holdout` a column that happens to have the name `split` must have no effect.
                if part == "split" and self._config.holdout != "none":
                    continue
                chosen = next((column for column in defaults if column in known), None)
            elif chosen not in known:
                raise UsageError(f"dataset: columns.{part}: no column {chosen!r}; {suggestion(chosen, known)}")
            if chosen is not None:
                columns[part] = chosen
        if "reference" not in columns:
            raise UsageError(
                "dataset: no column 'reference' or 'code' with the source of the tasks; "
                f"set columns.reference to one of {', '.join(sorted(known))}"
            )
        for column in self._config.where:
            if column not in known:
                raise UsageError(f"dataset: where: no column {column!r}; {suggestion(column, known)}")
        if "id" not in columns and "problem_id" in known:
            columns["number"] = "problem_id"
        return columns


def _task(row: Row, columns: dict[str, str], name: str, number: int) -> Found:
    """The task of a row.

    Raises:
        UsageError: the reference is not a string, or the level not an integer.
    """
    where, values = row
    part = {key: values.get(column) for key, column in columns.items()}
    if not isinstance(part["reference"], str):
        raise UsageError(f"{where}: column {columns['reference']!r} is not a string")
    level = part.get("level")
    if level is not None and (isinstance(level, bool) or not isinstance(level, int)):
        raise UsageError(f"{where}: column {columns['level']!r} has {level!r}, not an integer")
    if part.get("id") is not None:
        own = str(part["id"])
    elif part.get("number") is not None:
        own = f"{level}/{part['number']}" if level is not None else str(part["number"])
    else:
        own = str(number)
    task = Task(
        id=f"dataset/{name}/{own}",
        reference=part["reference"],
        split=str(part.get("split") or TRAIN),
        level=level,
        name=str(part.get("name") or ""),
    )
    return Found(task, where)
