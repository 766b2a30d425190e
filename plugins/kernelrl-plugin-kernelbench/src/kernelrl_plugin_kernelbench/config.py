"""Options of the three task sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import Fraction, NonNegativeInt, PositiveInt
from kernelrl_core.api.tasks import TaskConfig

__all__ = [
    "Columns",
    "DatasetConfig",
    "DirectoryConfig",
    "FractionHoldout",
    "KernelBenchConfig",
    "LevelNumbers",
    "NamedHoldout",
]


@attrs.frozen
class FractionHoldout:
    """Hold out a share of the tasks of every level."""

    fraction: Fraction
    """Share of each level, rounded to a number of tasks. Above 0 at least one task of every level with two or more."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Seed of the random choice."""


@attrs.frozen
class NamedHoldout:
    """Hold out tasks by name."""

    names: tuple[str, ...]
    """Names, ids, or patterns such as `level2/*`; each must match at least one task."""


@attrs.frozen
class LevelNumbers:
    """Task numbers by level."""

    level1: tuple[PositiveInt, ...] = ()
    """Task numbers of level 1."""
    level2: tuple[PositiveInt, ...] = ()
    """Task numbers of level 2."""
    level3: tuple[PositiveInt, ...] = ()
    """Task numbers of level 3."""
    level4: tuple[PositiveInt, ...] = ()
    """Task numbers of level 4."""

    def of(self, level: int) -> tuple[int, ...]:
        """Task numbers of a level."""
        numbers: tuple[int, ...] = getattr(self, f"level{level}")
        return numbers


@attrs.frozen
class KernelBenchConfig(TaskConfig):
    """Selection of KernelBench's tasks, and the held-out ones."""

    source: Literal["auto", "local", "hub"] = "auto"
    """`local`: a clone; `hub`: the data set on the Hugging Face hub; `auto`: a clone if there is one, else the hub if
    `revision` is set."""
    root: Path | None = None
    """Directory of the clone. Null: the environment variable `KERNELBENCH_ROOT`, else `./KernelBench`, else
    `../KernelBench`."""
    hub: str = "ScalingIntelligence/KernelBench"
    """Name of the data set on the hub."""
    revision: str | None = None
    """Commit of the data set on the hub. Required for the hub, since tasks change under the same number."""
    levels: tuple[Literal[1, 2, 3, 4], ...] = (1,)
    """Selected levels."""
    start: PositiveInt | None = None
    """First task number of each level."""
    end: PositiveInt | None = None
    """Last task number of each level, inclusive."""
    numbers: LevelNumbers | None = None
    """Only the tasks with these numbers; a level without numbers has no tasks. Null: all."""
    holdout: Literal["none", "kevin"] | LevelNumbers | FractionHoldout = attrs.field(
        factory=lambda: FractionHoldout(Fraction(0.1))
    )
    """Tasks of the split `held_out`: `kevin`, the published list of Kevin-32B for levels 1 and 2; numbers by level; or
    a random share of each level."""
    audit: Path | None = None
    """Output file of `kernelrl tasks audit`, which sets the tasks' flags. Null: the audit of this plugin."""

    def remote(self) -> bool:
        return self.source == "hub" or (self.source == "auto" and self.revision is not None)

    def problems(self) -> Iterable[str]:
        if not self.levels:
            yield "levels: select at least one of 1, 2, 3, 4"
        if self.start is not None and self.end is not None and self.end < self.start:
            yield f"end ({self.end}) is below start ({self.start})"
        if self.source == "hub" and self.revision is None:
            yield "source 'hub' needs revision: a commit of the data set, which fixes its tasks"


@attrs.frozen
class DirectoryConfig(TaskConfig):
    """Selection of the task files, and the held-out tasks."""

    path: Path
    """Directory with the task files."""
    glob: str = "**/*.py"
    """Pattern of the task files, relative to `path`. A parent folder such as `level2` sets a task's level."""
    holdout: Literal["none"] | NamedHoldout | FractionHoldout = "none"
    """Tasks of the split `held_out`."""
    audit: Path | None = None
    """Output file of `kernelrl tasks audit`, which sets the tasks' flags."""


@attrs.frozen
class Columns:
    """Column names of a data set. For null the default names are tried."""

    reference: str | None = None
    """Source of the reference. Null: `reference`, else `code`."""
    id: str | None = None
    """Id of the row. Null: `id`, else level and `problem_id`, else the row number."""
    name: str | None = None
    """Short name of the task. Null: `name`."""
    level: str | None = None
    """Level, an integer. Null: `level`."""
    split: str | None = None
    """Split of the row. Null: `split`."""


@attrs.frozen
class DatasetConfig(TaskConfig):
    """Selection of the rows of a data set, and the held-out tasks."""

    path: Path | None = None
    """File: `.jsonl`, `.json` (a list of rows) or `.parquet`."""
    hub: str | None = None
    """Data set on the Hugging Face hub, in place of `path`."""
    revision: str | None = None
    """Commit of the data set on the hub. Required for the hub."""
    subset: str | None = None
    """Configuration of the data set on the hub."""
    hub_split: str = "train"
    """Split of the data set on the hub."""
    columns: Columns = Columns()
    """Columns with the parts of a task."""
    where: dict[str, Any] = attrs.field(factory=dict)
    """Filter: only rows whose columns have these values."""
    offset: NonNegativeInt = NonNegativeInt(0)
    """Number of filtered rows to skip."""
    limit: PositiveInt | None = None
    """Maximum number of rows after `offset`. Null: all."""
    holdout: Literal["none"] | NamedHoldout | FractionHoldout = "none"
    """Tasks of the split `held_out`; not with `columns.split`."""
    audit: Path | None = None
    """Output file of `kernelrl tasks audit`, which sets the tasks' flags."""

    def remote(self) -> bool:
        return self.hub is not None

    def problems(self) -> Iterable[str]:
        if (self.path is None) == (self.hub is None):
            yield "set exactly one of path (a file) and hub (a data set of the hub)"
        if self.hub is not None and self.revision is None:
            yield "hub needs revision: a commit of the data set, which fixes its tasks"
        if self.columns.split is not None and self.holdout != "none":
            yield "columns.split and holdout exclude each other"

    def requires(self) -> Requires:
        fix = "pip install 'kernelrl-plugin-kernelbench[{}]'"
        if self.hub is not None:
            return Requires(modules=("datasets",), fix=fix.format("hub"))
        if self.path is not None and self.path.suffix == ".parquet":
            return Requires(modules=("pyarrow",), fix=fix.format("parquet"))
        return Requires()
