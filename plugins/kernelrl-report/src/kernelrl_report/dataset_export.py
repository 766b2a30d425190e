"""Samples as a data set: Parquet files in the layout that Hugging Face's `datasets.load_dataset` reads.

README.md                          the splits, for `load_dataset(DIR)`
data/train-00000-of-00001.parquet  training turns, with returns and advantages
data/held_out-…                    turns of held-out evaluations
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.results import Purpose, Results

__all__ = ["write_dataset"]

_SPLITS: dict[str, Purpose] = {"train": "train", "held_out": "eval"}
_ROWS = 500
"""Rows per row group, which are in memory together."""


def write_dataset(results: Results, directory: Path) -> dict[str, int]:
    """Write all turns into an existing directory.

    Returns:
        Number of rows by split, without empty splits.

    Raises:
        MissingPrerequisite: pyarrow is not installed.
        UsageError: there is no sample.
        KernelRLError: a journal is damaged.
        OSError: the directory cannot be written.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingPrerequisite(
            "--as dataset needs the package pyarrow", fix="pip install 'kernelrl[parquet]'"
        ) from error
    schema = _schema(arrow)
    (directory / "data").mkdir()
    counts: dict[str, int] = {}
    for split, purpose in _SPLITS.items():
        rows = _rows(results, purpose)
        path = directory / "data" / f"{split}-00000-of-00001.parquet"
        # Opened with the first rows: an empty split has no file.
        writer = None
        try:
            while chunk := list(islice(rows, _ROWS)):
                writer = writer or parquet.ParquetWriter(path, schema, compression="zstd")
                writer.write_table(arrow.Table.from_pylist(chunk, schema=schema))
                counts[split] = counts.get(split, 0) + len(chunk)
        finally:
            if writer is not None:
                writer.close()
    if not counts:
        raise UsageError(
            f"{results.path} has no samples to export", fix=f"kernelrl status {shlex.quote(str(results.path))}"
        )
    (directory / "README.md").write_text(_card(results.name, counts), encoding="utf-8")
    return counts


def _schema(pa: Any) -> Any:
    text, number, whole, truth = pa.string(), pa.float64(), pa.int32(), pa.bool_()
    message = pa.struct([("role", text), ("content", text)])
    finding = pa.struct([("rule", text), ("severity", text), ("evidence", text)])
    part = pa.struct([("name", text), ("value", number)])
    return pa.schema(
        [
            *((name, text) for name in ("sample", "task_id", "task_sha256")),
            *((name, whole) for name in ("level", "step", "task_index", "episode", "turn")),
            ("messages", pa.list_(message)),
            *((name, text) for name in ("reply", "thinking", "kernel", "kernel_sha256", "backend")),
            *((name, text) for name in ("outcome", "verdict", "message", "feedback")),
            ("findings", pa.list_(finding)),
            ("verified", truth),
            *((name, number) for name in ("speedup", "runtime_us", "baseline_us", "score")),
            ("score_parts", pa.list_(part)),
            *((name, whole) for name in ("prompt_tokens", "reply_tokens")),
            *((name, number) for name in ("return", "advantage")),
            ("excluded", text),
        ]
    )


def _rows(results: Results, purpose: Purpose) -> Iterator[dict[str, Any]]:
    credit: dict[str, Mapping[str, Any]] = {}
    if purpose == "train" and results.run is not None:
        credit = {row["sample"]: row for row in results.run.each_row("credits")}
    for row in results.rows(purpose):
        yield _clean(_row(row, credit.get(row["sample"], {})))


def _row(row: Mapping[str, Any], credit: Mapping[str, Any]) -> dict[str, Any]:
    evaluation, extraction = row["evaluation"] or {}, row["extraction"]
    candidate = extraction["candidate"] or {}
    times = {f"{key}_us": (evaluation.get(key) or {}).get("median_us") for key in ("runtime", "baseline")}
    masked = next((why for why in ("masked", "filtered") if credit.get(why)), "")
    return {
        **{key: row[key] for key in ("sample", "task_id", "task_sha256", "level", "step", "task_index", "turn")},
        "episode": row["attempt"],
        "messages": row["prompt"]["messages"],
        "reply": row["reply"]["text"],
        "thinking": extraction["thinking"],
        "kernel": candidate.get("source"),
        "kernel_sha256": row["kernel_sha256"],
        "backend": candidate.get("backend"),
        **{key: row[key] for key in ("outcome", "verdict", "message", "feedback", "speedup")},
        "findings": [{key: one[key] for key in ("rule", "severity", "evidence")} for one in row["findings"]],
        "verified": row.get("verified"),
        **times,
        "score": row["score"]["total"],
        "score_parts": [{"name": name, "value": value} for name, value in row["score"]["parts"].items()],
        "prompt_tokens": len(row["prompt"]["tokens"]),
        "reply_tokens": len(row["reply"]["tokens"]),
        "return": credit.get("return"),
        "advantage": credit.get("advantage"),
        "excluded": credit.get("reason") or masked if credit else None,
    }


def _clean(value: Any) -> Any:
    """The value with lone surrogates in texts replaced, which models write and Parquet does not permit."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _card(name: str, counts: Mapping[str, int]) -> str:
    files = "".join(f"  - split: {split}\n    path: data/{split}-*.parquet\n" for split in counts)
    listed = ", ".join(f"{count} rows in split {split}" for split, count in counts.items())
    return (
        f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n# {name}\n\n"
        f"Samples of kernelrl, one row per turn: {listed}. Kernels and replies are untrusted code: execute them in a\n"
        "sandbox only.\n"
    )
