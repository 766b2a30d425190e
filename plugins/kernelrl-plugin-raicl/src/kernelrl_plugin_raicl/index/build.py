"""Build an index: resumable, and complete or absent under its final name."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.api.config import FileLock, replace_directory, write_atomically
from kernelrl_core.api.errors import StorageError, UsageError
from kernelrl_plugin_raicl.corpora import Corpus
from kernelrl_plugin_raicl.index.behaviour import write_behaviour
from kernelrl_plugin_raicl.index.dense import FaissType, embed_references, write_dense
from kernelrl_plugin_raicl.index.embedder import Embedder
from kernelrl_plugin_raicl.index.lexical import write_lexical
from kernelrl_plugin_raicl.index.manifest import FORMAT, NAME, VERSION, read_manifest, write_manifest
from kernelrl_plugin_raicl.index.store import RECORDS, Store, record_line, write_rows
from kernelrl_plugin_raicl.record import Record

__all__ = ["Progress", "build_index"]

Progress = Callable[[str, int, int], None]
"""Called with the phase, and the numbers of finished and of all items; 0 items: unknown."""

_PLAN, _DONE, _LOCK = "plan.json", "done.json", "lock"
_NAMED_PER_REASON = 5
_RECORDS_PER_CALL = 256


def build_index(
    corpora: Sequence[Corpus],
    output: Path,
    *,
    options: Mapping[str, Any],
    embedder: Embedder | None = None,
    kind: FaissType = "flat",
    protected: Mapping[str, str] | None = None,
    replace: bool = False,
    progress: Progress = lambda phase, done, total: None,
) -> dict[str, Any]:
    """Build an index, or continue an interrupted build of the same index; returns its manifest.

    The work is in a hidden directory beside `output`, which becomes `output` when it is complete. If `output` already
    has this index, nothing is done.

    Args:
        options: filters and other settings, as plain data for the manifest.
        embedder: model of the dense index; None: lexical search only.
        protected: content hash -> source of the tasks with which references are compared by their outputs; None: no
            reference is called.
        replace: whether to replace another index at `output`.

    Raises:
        UsageError: `output` is another index or no index, another process builds it, or no record is left.
        StorageError: the disk is full, broken or read-only.
        InfrastructureError: the sandboxes for the references do not start.
    """
    output = output.absolute()
    dense = {**embedder.facts(), "type": kind} if embedder is not None else None
    sources = [dict(corpus.manifest()) for corpus in corpora]
    plan = {"format": FORMAT, "version": VERSION, "corpora": sources, "options": dict(options), "dense": dense}
    plan["protected"] = sorted(protected) if protected is not None else None
    plan = json.loads(json.dumps(plan))
    existing = _existing(output, plan, replace)
    if existing is not None:
        return existing
    work = output.with_name(f".{output.name}.building")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _locked(work, output):
            if _read(work / _PLAN) != plan:
                _clear(work)
                write_atomically(work / _PLAN, json.dumps(plan))
            content = _build(work, corpora, plan, embedder, kind, protected, progress)
            for name in (_PLAN, _DONE, _LOCK):
                (work / name).unlink(missing_ok=True)
            shutil.rmtree(work / "vectors", ignore_errors=True)
            write_manifest(work, content)
            replace_directory(work, output)
    except OSError as error:
        message = f"index {output}: {error.filename or work}: {error.strerror or error}"
        raise StorageError(message, fix="free disk space or permit access; the same command continues") from error
    return read_manifest(output, verify=False)[0]


def _build(
    work: Path,
    corpora: Sequence[Corpus],
    plan: Mapping[str, Any],
    embedder: Embedder | None,
    kind: FaissType,
    protected: Mapping[str, str] | None,
    progress: Progress,
) -> dict[str, Any]:
    read = _write_records(work, corpora, progress)
    progress("writing the table of records", 0, 0)
    counts = write_rows(work)
    if not counts["records"]:
        shutil.rmtree(work)
        reasons = "; ".join(f"{reason} ({count})" for entry in read for reason, count in entry["skipped"].items())
        raise UsageError(f"no record is left for the index: {reasons or 'the corpora are empty'}")
    store = Store(work, sorted(counts["backends"]))
    facts = _read(work / "lexical.json")
    if facts is None:
        progress("counting the words of the records", 0, counts["records"])
        shutil.rmtree(work / "lexical", ignore_errors=True)
        facts = write_lexical(work, store)
        write_atomically(work / "lexical.json", json.dumps(facts))
    dense = None
    if embedder is not None:
        vectors = embed_references(
            work / "vectors", store, embedder, lambda done, total: progress("embedding the references", done, total)
        )
        progress("building the dense index", 0, len(vectors))
        dense = {**embedder.facts(), **write_dense(work, store, vectors, embedder.probe, kind)}
    behaviour = None
    if protected:
        progress("comparing outputs with those of tasks", 0, store.n_references)
        behaviour = write_behaviour(
            work, store, protected, lambda done, total: progress("comparing outputs with those of tasks", done, total)
        )
    (work / "lexical.json").unlink()
    sources = [{**source, **entry} for source, entry in zip(plan["corpora"], read, strict=True)]
    return {
        "corpora": sources,
        "options": plan["options"],
        **counts,
        "lexical": facts,
        "dense": dense,
        "behaviour": behaviour,
        "protected": plan["protected"],
    }


def _write_records(work: Path, corpora: Sequence[Corpus], progress: Progress) -> list[dict[str, Any]]:
    """Append the records of each corpus to `records.jsonl`; finished corpora of an earlier call are kept.

    Returns:
        Per corpus: rows read, records, skipped rows by reason, and ids of some skipped rows by reason.
    """
    finished: list[dict[str, Any]] = _read(work / _DONE) or []
    with (work / RECORDS).open("ab") as stream:
        stream.truncate(finished[-1]["end"] if finished else 0)
        stream.seek(0, os.SEEK_END)
        for corpus in corpora[len(finished) :]:
            name = str(corpus.manifest()["name"])
            skipped: Counter[str] = Counter()
            named: dict[str, list[str]] = {}
            records = 0
            for rows, found in enumerate(corpus.records(), start=1):
                if isinstance(found, Record):
                    stream.write(record_line(found))
                    records += 1
                else:
                    skipped[found.reason] += 1
                    examples = named.setdefault(found.reason, [])
                    if len(examples) < _NAMED_PER_REASON:
                        examples.append(f"{found.id}: {found.detail}" if found.detail else found.id)
                if rows % _RECORDS_PER_CALL == 0:
                    progress(f"reading records of {name}", rows, 0)
            stream.flush()
            os.fsync(stream.fileno())
            entry = {"records_read": records, "skipped": dict(sorted(skipped.items())), "skipped_rows": named}
            finished.append({**entry, "end": stream.tell()})
            write_atomically(work / _DONE, json.dumps(finished))
    return [{key: value for key, value in entry.items() if key != "end"} for entry in finished]


def _existing(output: Path, plan: Mapping[str, Any], replace: bool) -> dict[str, Any] | None:
    """The manifest of a finished index with this plan; None if `output` is to be written."""
    if not output.exists():
        return None
    if not (output / NAME).is_file():
        if output.is_dir() and not any(output.iterdir()):
            return None
        raise UsageError(f"{output} exists and is not an index", fix="choose another --output", see="index")
    manifest = _read(output / NAME) or {}
    corpora = [
        {key: value for key, value in entry.items() if key not in ("records_read", "skipped", "skipped_rows")}
        for entry in manifest.get("corpora", ())
    ]
    dense = manifest.get("dense")
    if dense is not None and plan["dense"] is not None:
        dense = {key: dense.get(key) for key in plan["dense"]}
    built = {**{key: manifest.get(key) for key in plan}, "corpora": corpora, "dense": dense}
    if built == plan:
        return read_manifest(output)[0]
    if replace:
        return None
    different = ", ".join(key for key in plan if built[key] != plan[key])
    raise UsageError(
        f"{output} is another index (different: {different})",
        fix="choose another --output, or add --replace",
        see="index",
    )


def _locked(work: Path, output: Path) -> FileLock:
    try:
        return FileLock(work / _LOCK, wait=False)
    except BlockingIOError:
        raise UsageError(f"another process builds {output}", fix="wait until it has finished", see="index") from None


def _clear(work: Path) -> None:
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


def _read(path: Path) -> Any:
    """Content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
