"""Published corpora: their columns, licences and revisions, and how a row becomes a record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.errors import UsageError, suggestion
from kernelrl_plugin_raicl.corpora.corpus import Corpus, Filters
from kernelrl_plugin_raicl.corpora.tables import BrokenRow, HubTable, LocalTable, Row, Table
from kernelrl_plugin_raicl.record import Record, Skipped
from kernelrl_plugin_raicl.rewriting import (
    Pair,
    Unrewritable,
    rewrite_archive,
    rewrite_inductor,
    rewrite_submission,
)

__all__ = ["PUBLISHED", "Published", "PublishedCorpus", "checked_rows"]

_MAX_REFERENCE, _MAX_KERNEL = 50_000, 100_000
"""Longest sources, in characters; the published builder has the same limits."""
_INCORRECT = "the corpus calls the kernel incorrect"
_NO_REFERENCE = "problem without a reference"


@attrs.frozen
class Published:
    """A corpus on the hub."""

    hub: str
    """Name of the data set."""
    revision: str
    """Commit, or the branch to resolve."""
    licence: str
    """SPDX name of the licence at that revision."""
    backend: str
    """Backend of the kernels; empty: found in each kernel."""
    columns: tuple[str, ...]
    """Columns that must exist."""
    reader: Callable[[PublishedCorpus], Iterator[Record | Skipped]]
    parts: tuple[tuple[str, str], ...] = (("", "train"),)
    """Pairs of configuration and split."""
    pattern: str = "*"
    """Files of a local copy."""


class PublishedCorpus(Corpus):
    """A published corpus, from the hub or from a local copy."""

    def __init__(self, name: str, filters: Filters, path: Path | None = None, revision: str = "") -> None:
        self.name, self.filters, self.path = name, filters, path
        self.facts = PUBLISHED[name]
        self._revision = revision or self.facts.revision
        parts = self.facts.parts
        if filters.levels:
            wanted = {f"level_{level}" for level in filters.levels}
            parts = tuple(part for part in parts if not part[1].startswith("level_") or part[1] in wanted)
        self.table = self.open(parts, self.facts.pattern)

    def open(self, parts: tuple[tuple[str, str], ...], pattern: str) -> Table:
        """A table of this corpus."""
        if self.path is not None:
            return LocalTable(self.path, pattern)
        local_copy = (
            f"on a machine with access: hf download {self.facts.hub} --repo-type dataset --revision "
            f"{self._revision} --local-dir DIR; here: kernelrl index build --corpora {self.name}=DIR --output INDEX"
        )
        return HubTable(self.facts.hub, parts, self._revision, local_copy)

    @property
    def origin(self) -> str:
        return f"{self.name}@{self.table.revision[:15]}"

    def records(self) -> Iterator[Record | Skipped]:
        if self.filters.backend and self.facts.backend not in ("", self.filters.backend):
            return
        for record in self.facts.reader(self):
            is_wanted = isinstance(record, Skipped) or self.filters.backend in ("", record.backend)
            if is_wanted:
                yield record

    def manifest(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "revision": self.table.revision,
            "licence": self.facts.licence,
            "source": self.table.source,
        }

    def rows(self) -> Iterator[tuple[int, Row] | Skipped]:
        """Rows with their numbers, from 0."""
        return checked_rows(self.name, self.table, self.facts.columns)

    def record(self, id_: str, rewrite: Callable[[], Pair], **fields: Any) -> Record | Skipped:
        """The record of a row."""
        try:
            pair = rewrite()
        except Unrewritable as error:
            return Skipped(id_, error.reason, error.detail)
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            return Skipped(id_, "sources in a form that is not known", f"{type(error).__name__}: {error}"[:200])
        backend = fields.pop("backend", "") or _backend(pair.kernel)
        if not backend:
            return Skipped(id_, "no kernel of a known language")
        licence = fields.pop("licence", "") or self.facts.licence
        return Record(id_, pair.reference, pair.kernel, backend, origin=self.origin, licence=licence, **fields)


def checked_rows(name: str, table: Table, columns: tuple[str, ...]) -> Iterator[tuple[int, Row] | Skipped]:
    """Rows that have all columns, with their numbers.

    Raises:
        UsageError: the first row lacks a column.
    """
    is_first = True
    for number, row in enumerate(table.rows()):
        if isinstance(row, BrokenRow):
            yield Skipped(f"{name}/{number}", "row is broken", f"{row.where}: {row.detail}")
            continue
        for column in columns:
            if column in row:
                continue
            if is_first:
                known = sorted(row)
                raise UsageError(
                    f"corpus {name}: {table.source} has no column {column!r}; {suggestion(column, known)}; "
                    f"needed: {', '.join(columns)}"
                )
            yield Skipped(f"{name}/{number}", "row lacks a column", column)
            break
        else:
            is_first = False
            yield number, row


def _kernelbook(corpus: PublishedCorpus) -> Iterator[Record | Skipped]:
    for item in corpus.rows():
        if isinstance(item, Skipped):
            yield item
            continue
        number, row = item
        id_ = f"{corpus.name}/{number}"
        if skipped := _unusable(id_, row, ("python_code", "entry_point"), ("triton_code",)):
            yield skipped
            continue
        reference, kernel, entry = row["python_code"], row["triton_code"], row["entry_point"]
        licences = row.get("licenses")
        yield corpus.record(
            id_,
            lambda reference=reference, kernel=kernel, entry=entry: rewrite_inductor(reference, kernel, entry),
            backend="triton",
            name=entry,
            licence=" AND ".join(map(str, licences)) if isinstance(licences, list) else "",
        )


def _archive(corpus: PublishedCorpus) -> Iterator[Record | Skipped]:
    seen: dict[str, int] = {}
    for item in corpus.rows():
        if isinstance(item, Skipped):
            yield item
            continue
        _, row = item
        level, task = _number(row["Level_ID"]), _number(row["Task_ID"])
        id_ = f"{corpus.name}/{level}/{task}/{row.get('Kernel_Name')}"
        seen[id_] = count = seen.get(id_, 0) + 1
        id_ += f"#{count}" if count > 1 else ""
        filters = corpus.filters
        if not filters.takes_level(level):
            continue
        if skipped := _unusable(id_, row, ("PyTorch_Code_Module", "PyTorch_Code_Functional"), ("CUDA_Code",)):
            yield skipped
            continue
        correct = row["Correct"] in (True, 1, "True", "true")
        if not correct and not filters.include_incorrect:
            yield Skipped(id_, _INCORRECT)
            continue
        speedup = row["CUDA_Speedup_Native"]
        is_measured = isinstance(speedup, int | float) and math.isfinite(speedup) and speedup > 0
        operation = re.sub(rf"^{task}_", "", str(row["Op_Name"]))
        sources = row["PyTorch_Code_Module"], row["PyTorch_Code_Functional"], row["CUDA_Code"]
        yield corpus.record(
            id_,
            lambda sources=sources: rewrite_archive(*sources),
            backend="cuda",
            name=f"level_{level}/{task}_{operation}",
            level=level,
            speedup=float(speedup) if is_measured and correct else None,
            correct=correct,
        )


def _kernelbot(corpus: PublishedCorpus) -> Iterator[Record | Skipped]:
    problems: dict[Any, tuple[str, Mapping[str, Any]]] = {}
    table = corpus.open((("leaderboards", "train"),), "leaderboards*")
    for item in checked_rows(f"{corpus.name} (leaderboards)", table, ("id", "name", "task")):
        if not isinstance(item, Skipped):
            task = item[1]["task"]
            try:
                problems[item[1]["id"]] = (
                    str(item[1]["name"]),
                    json.loads(task) if isinstance(task, str) else task or {},
                )
            except ValueError:
                yield Skipped(f"{corpus.name}/leaderboards/{item[0]}", "row is broken", "task is not JSON")
    for item in corpus.rows():
        if isinstance(item, Skipped):
            yield item
            continue
        number, row = item
        id_ = f"{corpus.name}/{row.get('submission_id', number)}"
        passed = row.get("run_passed") is not False
        if not passed and not corpus.filters.include_incorrect:
            yield Skipped(id_, _INCORRECT)
            continue
        name, task = problems.get(row["leaderboard_id"], ("", {}))
        files = task.get("files") or {}
        reference = files.get("reference.py") if isinstance(files, Mapping) else None
        code = row["code"]
        row = {"code": code.decode(errors="replace") if isinstance(code, bytes) else code, "reference": reference}
        if not isinstance(reference, str):
            yield Skipped(id_, _NO_REFERENCE, name)
            continue
        if skipped := _unusable(id_, row, ("reference",), ("code",)):
            yield skipped
            continue
        sizes = next(iter(task.get("tests") or ()), {})
        submission = row["code"]
        yield corpus.record(
            id_,
            lambda reference=reference, sizes=sizes, submission=submission: rewrite_submission(
                reference, sizes, submission
            ),
            name=name,
            correct=passed,
        )


PUBLISHED: Mapping[str, Published] = {
    "kernelbook": Published(
        hub="GPUMODE/KernelBook",
        revision="1576375bc92745b490e1cdf2fce01eba76d9f847",
        licence="MIT",
        backend="triton",
        columns=("python_code", "triton_code", "entry_point"),
        reader=_kernelbook,
    ),
    "ai_cuda_engineer": Published(
        hub="SakanaAI/AI-CUDA-Engineer-Archive",
        revision="main",
        licence="CC-BY-4.0",
        backend="cuda",
        columns=(
            *("Level_ID", "Task_ID", "Op_Name", "CUDA_Code", "PyTorch_Code_Module", "PyTorch_Code_Functional"),
            *("Correct", "CUDA_Speedup_Native"),
        ),
        reader=_archive,
        parts=(("", "level_1"), ("", "level_2"), ("", "level_3")),
    ),
    "kernelbot": Published(
        hub="GPUMODE/kernelbot-data",
        revision="4484246ac9ac61b2fc2c14323ac58e94d9319ce8",
        licence="MIT",
        backend="",
        columns=("code", "leaderboard_id"),
        reader=_kernelbot,
        parts=(("amd_successful_submissions", "train"),),
        pattern="*submissions",
    ),
}
"""Name -> published corpus."""


def _unusable(
    id_: str, row: Mapping[str, Any], references: tuple[str, ...], kernels: tuple[str, ...]
) -> Skipped | None:
    """Why the sources of a row cannot be read; None if they can."""
    for column in (*references, *kernels):
        value = row[column]
        if not isinstance(value, str) or not value.strip():
            return Skipped(id_, "row without a source", column)
        limit = _MAX_KERNEL if column in kernels else _MAX_REFERENCE
        if len(value) > limit:
            return Skipped(id_, f"source longer than {limit:,} characters", column)
    return None


def _number(value: Any) -> int | None:
    found = re.search(r"\d+", str(value))
    return int(found[0]) if found else None


def _backend(kernel: str) -> str:
    if "load_inline" in kernel and "__global__" in kernel:
        return "hip"
    return "triton" if "triton.jit" in kernel else ""
