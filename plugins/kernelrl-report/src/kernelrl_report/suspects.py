"""The training samples of a run that a person should review."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelrl_core.api.checkers import Severity
from kernelrl_core.api.runs import RunDir, needs_review

__all__ = ["suspect_samples", "write_kernels"]


def suspect_samples(run: RunDir, *, hacked: bool = False) -> list[dict[str, Any]]:
    """Correct samples with verdict suspect, and correct samples that failed verification, in the order of the journal.

    Each has the key `row`, its line number in `samples.jsonl`, counted from 1.

    Args:
        hacked: include samples with outcome `hacked`.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(run.rows("samples"), 1):
        # A turn that was retried has several rows; the last one counts.
        found.pop(row["sample"], None)
        if needs_review(row, hacked=hacked):
            found[row["sample"]] = {
                **{key: row[key] for key in ("sample", "task_id", "kernel_sha256", "outcome", "verdict", "speedup")},
                "reward": row["score"]["total"],
                "verified": row.get("verified"),
                "findings": [item for item in row["findings"] if item["severity"] != Severity.NOTE],
                "row": number,
            }
    return list(found.values())


def write_kernels(run: RunDir, samples: list[dict[str, Any]], directory: Path) -> None:
    """Write the source of each sample as `directory/SAMPLE.py`.

    Raises:
        OSError: the directory or a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rows = run.rows("samples")
    for sample in samples:
        candidate = rows[sample["row"] - 1]["extraction"]["candidate"]
        path = directory / f"{sample['sample']}.py"
        path.write_text(candidate["source"], encoding="utf-8", errors="surrogatepass")
