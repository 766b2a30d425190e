"""The report: a run as one HTML file that needs no server and no network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import disk_error, write_atomically
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.runs import RunDir
from kernelrl_report.episodes import episode
from kernelrl_report.index import FIELDS, EpisodeKey, RunIndex
from kernelrl_report.page import block, packed, report_page

__all__ = ["Written", "require_output", "write_report"]

_CHUNK = 1 << 18
"""Characters of JSON in a chunk, after which the next one begins. The page unpacks one chunk to show an episode."""


@attrs.frozen
class Written:
    """Result of writing a report."""

    samples: int
    """Samples of the run."""
    without_text: int
    """Samples whose texts the size limit excludes."""
    size: int
    """Size of the file in bytes."""


def write_report(run: RunDir, output: Path, max_bytes: int) -> Written:
    """Write the report of a run. An existing file is replaced after the new one is complete.

    Raises:
        UsageError: the run has no samples, or a newer version of kernelrl wrote it.
        KernelRLError: the run cannot be read, or the file cannot be written.
    """
    index = RunIndex(run)
    index.refresh()
    if not index.records:
        raise UsageError(f"run {run.path} has no samples yet", fix=f"kernelrl status {run.word}", see="run-failed")
    order = _most_informative_first(index)
    document = index.document() | {
        "recipe": (run.path / "recipe.yaml").read_text(encoding="utf-8", errors="replace"),
    }
    order = _most_informative_first(index)
    # The places of the episodes are known only when their texts are packed.
    chunks = _Chunks(max_bytes - len(report_page(block("index", packed(document)), ())) - 16 * len(order))
    for key in order:
        chunks.add(key, episode(index.rows(key), chunks.shared))
    chunks.close()
    missing = sum(len(index.episodes[key]) for key in order if key not in chunks.places)
    document |= {
        "places": [[*key, chunk] for key, chunk in chunks.places.items()],
        "first_shared": chunks.first_shared,
        "without_text": missing,
    }
    content = report_page(block("index", packed(document)), chunks.blocks)
    try:
        write_atomically(output, content)
    except OSError as error:
        raise disk_error(output, error) from error
    return Written(len(index.records), missing, len(content))


class _Chunks:
    """Compressed blocks with the texts of episodes, up to a size limit."""

    def __init__(self, limit: int) -> None:
        self.blocks: list[bytes] = []
        self.places: dict[EpisodeKey, int] = {}
        """Episode -> number of its block."""
        self.first_shared: list[int] = []
        """For each block, the number of the first shared text in it."""
        self._left = limit
        self._begin()
        self._numbers: dict[str, int] = {}

    def _begin(self) -> None:
        self._episodes: dict[EpisodeKey, dict[str, Any]] = {}
        self._shared: list[str] = []
        self._size = 0

    def shared(self, text: str) -> int:
        """Store a text that several episodes may have, and return its number."""
        if text not in self._numbers:
            self._numbers[text] = len(self._numbers)
            self._shared.append(text)
            self._size += len(text)
        return self._numbers[text]

    def add(self, key: EpisodeKey, document: dict[str, Any]) -> None:
        """Store an episode, whose shared texts are stored."""
        self._episodes[key] = document
        self._size += sum(len(text) for text in document["texts"] if isinstance(text, str))
        if self._size >= _CHUNK:
            self.close()

    def close(self) -> None:
        """Compress the additions since the last call; exclude them if the size limit does not permit them."""
        named = {".".join(map(str, key)): document for key, document in self._episodes.items()}
        data = block(f"chunk-{len(self.blocks)}", packed({"shared": self._shared, "episodes": named}))
        if self._episodes and len(data) <= self._left:
            self._left -= len(data)
            self.places |= dict.fromkeys(self._episodes, len(self.blocks))
            self.first_shared.append(len(self._numbers) - len(self._shared))
            self.blocks.append(data)
        else:
            for text in self._shared:
                del self._numbers[text]
        self._begin()


def _most_informative_first(index: RunIndex) -> list[EpisodeKey]:
    """Episodes in the order in which a size limit keeps them.

    First those with a sample to review or with the best kernel of a task, then those with a correct kernel or an
    advantage, then all others; later steps first.
    """
    best: dict[int, tuple[tuple[float, float], EpisodeKey]] = {}
    classes: dict[EpisodeKey, int] = {}
    for values in index.records:
        record = dict(zip(FIELDS, values, strict=True))
        key: EpisodeKey = tuple(values[:4])
        rank = 2
        if record["outcome"] == "correct":
            rank = 1
            merit = (record["speedup"] or 0.0, record["score"])
            if record["task"] not in best or merit > best[record["task"]][0]:
                best[record["task"]] = merit, key
        elif record["advantage"]:
            rank = 1
        if record["evidence"] is not None:
            rank = 0
        classes[key] = min(rank, classes.get(key, 2))
    classes |= dict.fromkeys((key for _, key in best.values()), 0)
    return sorted(classes, key=lambda key: (classes[key], -key[1], key))


def require_output(run: RunDir, output: Path | None) -> Path:
    """The file of the report, checked before the work begins.

    Args:
        output: the file that the user has named; None: report.html in the run directory.

    Raises:
        UsageError: its directory does not exist or cannot be written.
    """
    path = output or run.path / "report.html"
    directory = path.absolute().parent
    if not directory.is_dir():
        raise UsageError(
            f"--output {path}: directory {directory} does not exist", fix=f"mkdir -p {directory}", see="output-file"
        )
    if not os.access(directory, os.W_OK):
        raise UsageError(
            f"{directory} cannot be written", fix=f"kernelrl report {run.word} --output FILE", see="output-file"
        )
    return path
