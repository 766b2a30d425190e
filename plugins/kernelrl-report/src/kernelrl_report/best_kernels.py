"""The best kernel of each task as a folder: files `TASK.py`, and `kernels.json` with verdicts and provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import KernelRLError
from kernelrl_core.api.results import Choice, Purpose, Results, Selection, select_best

__all__ = ["INDEX", "write_best_kernels"]

INDEX = "kernels.json"
_PURPOSES: tuple[Purpose, ...] = ("train", "eval")


def write_best_kernels(results: Results, directory: Path, *, suspects: bool = False) -> Selection:
    """Write the best kernel of each task into an existing directory.

    Kernels of training and of held-out evaluations count. They are selected and ranked as by `distill`.

    Args:
        suspects: include kernels with verdict `suspect`.

    Raises:
        KernelRLError: no kernel is selected, or a journal is damaged.
        OSError: the directory cannot be written.
    """
    found = select_best(_rows(results), Choice(1, suspects=suspects), _entry)
    if not found.entries:
        raise KernelRLError(f"{results.path} has no kernel to export: {found.reasons()}")
    entries = []
    for entry in found.entries:
        file = f"{_path_of(entry['task_id'])}.py"
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry.pop("source"), encoding="utf-8", errors="surrogatepass")
        purpose, _, sample = entry.pop("sample").rpartition(" ")
        entries.append({"file": file, **entry, "purpose": purpose, "sample": sample})
    index = {"from": str(results.path), "kernels": entries, "provenance": results.provenance()}
    (directory / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return found


def _rows(results: Results) -> Iterator[dict[str, Any]]:
    for purpose in _PURPOSES:
        for row in results.rows(purpose):
            # Training and held-out evaluation count their samples separately.
            yield {**row, "sample": f"{purpose} {row['sample']}"}


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    evaluation, candidate = row["evaluation"], row["extraction"]["candidate"]
    times = {name: (evaluation.get(name) or {}).get("median_us") for name in ("runtime", "baseline")}
    return {
        **{key: row[key] for key in ("task_id", "task_sha256", "level", "kernel_sha256", "outcome", "verdict")},
        "verified": row.get("verified"),
        "findings": row["findings"],
        "speedup": row["speedup"],
        **{key: evaluation.get(key) for key in ("speedup_ci", "eager_speedup")},
        **{f"{name}_us": value for name, value in times.items()},
        "score": row["score"]["total"],
        "backend": candidate["backend"],
        "isolation": evaluation.get("isolation"),
        "evaluation": evaluation.get("provenance"),
        "sample": row["sample"],
        "source": candidate["source"],
    }


def _path_of(task_id: str) -> str:
    """A task id as a relative path that stays below its folder."""
    return "/".join(f"_{part}" if part.startswith(".") else part for part in task_id.split("/") if part)
