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
    """Share of each level, rounded; a share above 0 holds out at least one task of a level that has two."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Another seed holds out other tasks."""


@attrs.frozen
class NamedHoldout:
    """Hold out the tasks with these names."""

    names: tuple[str, ...]
    """Names, ids, or patterns such as `level2/*`; each must fit some task."""


@attrs.frozen
class LevelNumbers:
    """Numbers of problems, by level."""

    level1: tuple[PositiveInt, ...] = ()
    """Numbers of level 1."""
    level2: tuple[PositiveInt, ...] = ()
    """Numbers of level 2."""
    level3: tuple[PositiveInt, ...] = ()
    """Numbers of level 3."""
    level4: tuple[PositiveInt, ...] = ()
    """Numbers of level 4."""

    def of(self, level: int) -> tuple[int, ...]:
        """Numbers of a level."""
        numbers: tuple[int, ...] = getattr(self, f"level{level}")
        return numbers


@attrs.frozen
class KernelBenchConfig(TaskConfig):
    """Which problems of KernelBench take part, and which of them are held out."""

    source: Literal["auto", "local", "hub"] = "auto"
    """`local`: a clone; `hub`: the data set; `auto`: a clone where there is one, else the hub if `revision` is set."""
    root: Path | None = None
    """The clone. Null takes the environment's `KERNELBENCH_ROOT`, then `./KernelBench`, then `../KernelBench`."""
    hub: str = "ScalingIntelligence/KernelBench"
    """Name of the data set on the hub."""
    revision: str | None = None
    """Commit of the data set on the hub; needed there, since problems change under the same number."""
    levels: tuple[Literal[1, 2, 3, 4], ...] = (1,)
    """Levels that take part."""
    start: PositiveInt | None = None
    """First problem number of each level."""
    end: PositiveInt | None = None
    """Last problem number of each level, included."""
    numbers: LevelNumbers | None = None
    """Only these problems; a level without numbers is empty."""
    holdout: Literal["none", "kevin"] | LevelNumbers | FractionHoldout = attrs.field(
        factory=lambda: FractionHoldout(Fraction(0.1))
    )
    """Problems of the split `held_out`: `kevin` is the published list for levels 1 and 2; numbers by level; or a seeded
    share of each level."""
    audit: Path | None = None
    """File of `kernelrl tasks audit`, whose flags the tasks get. Null takes the audit that comes with the plugin."""

    def problems(self) -> Iterable[str]:
        if not self.levels:
            yield "levels: name at least one of 1, 2, 3, 4"
        if self.start is not None and self.end is not None and self.end < self.start:
            yield f"end ({self.end}) is below start ({self.start})"
        if self.source == "hub" and self.revision is None:
            yield "source 'hub' needs a revision: the commit of the data set, so that its problems stay the same"


@attrs.frozen
class DirectoryConfig(TaskConfig):
    """Which files are tasks, and which of them are held out."""

    path: Path
    """Directory that is searched."""
    glob: str = "**/*.py"
    """Files that are tasks, relative to `path`. A folder such as `level2` above a file sets its level."""
    holdout: Literal["none"] | NamedHoldout | FractionHoldout = "none"
    """Tasks of the split `held_out`."""
    audit: Path | None = None
    """File of `kernelrl tasks audit`, whose flags the tasks get."""


@attrs.frozen
class Columns:
    """Columns of a data set. A column that is null is found by its usual names, where they exist."""

    reference: str | None = None
    """Source of the reference; `reference` or `code`."""
    id: str | None = None
    """Identity of the row; `id`, else level and `problem_id`, else the row's number."""
    name: str | None = None
    """Short name; `name`."""
    level: str | None = None
    """Level, a whole number; `level`."""
    split: str | None = None
    """Split of the row; `split`."""


@attrs.frozen
class DatasetConfig(TaskConfig):
    """Which rows are tasks, and which of them are held out."""

    path: Path | None = None
    """File: `.jsonl`, `.json` (a list of rows) or `.parquet`."""
    hub: str | None = None
    """Data set on the Hugging Face hub, in place of a file."""
    revision: str | None = None
    """Commit of the data set on the hub; needed there."""
    subset: str | None = None
    """Configuration of the data set on the hub."""
    hub_split: str = "train"
    """Split of the data set on the hub that is read."""
    columns: Columns = Columns()
    """Where the parts of a task stand."""
    where: dict[str, Any] = attrs.field(factory=dict)
    """Keep rows whose columns equal these values."""
    offset: NonNegativeInt = NonNegativeInt(0)
    """Leave out so many of the rows that were kept."""
    limit: PositiveInt | None = None
    """Most rows."""
    holdout: Literal["none"] | NamedHoldout | FractionHoldout = "none"
    """Tasks of the split `held_out`, where the data set has no column for splits."""
    audit: Path | None = None
    """File of `kernelrl tasks audit`, whose flags the tasks get."""

    def problems(self) -> Iterable[str]:
        if (self.path is None) == (self.hub is None):
            yield "name either a file (path) or a data set of the hub (hub)"
        if self.hub is not None and self.revision is None:
            yield "hub needs a revision: the commit of the data set, so that its tasks stay the same"
        if self.columns.split is not None and self.holdout != "none":
            yield "columns.split and holdout exclude each other"

    def requires(self) -> Requires:
        fix = "pip install 'kernelrl-plugin-kernelbench[{}]'"
        if self.hub is not None:
            return Requires(modules=("datasets",), fix=fix.format("hub"))
        if self.path is not None and self.path.suffix == ".parquet":
            return Requires(modules=("pyarrow",), fix=fix.format("parquet"))
        return Requires()
