"""Runs of kernelrl in slices of time, and their state as small files.

A slice starts runs or resumes them, one on each GPU, and stops each after the last step that fits into the time. The
directory has everything that a later slice needs. `pack` writes the runs and cached warm starts of a directory into
files of limited size, which may be copied to another machine, and `unpack` restores them.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from provenance import machine

from kernelrl_core.runs.directory import RunDir

__all__ = ["Job", "pack", "run_slice", "slices_of", "unpack"]

MARGIN_S = 12.0
"""Seconds reserved for saving and for the termination of judges."""
UNKNOWN_STEP_S = 45.0
STARTING_S = 60.0
"""Least remaining time in which a run is started."""
PART_BYTES = 15 << 20
CACHED = "torch-warm-start"
"""Part of the cache that a resumed or a later run needs; anything else is computed again."""


@attrs.frozen
class Job:
    """A run of a slice."""

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()


@attrs.define(eq=False)
class _Running:
    job: Job
    run: RunDir
    process: subprocess.Popen[bytes]
    steps_before: int
    started: float
    sent: int = 0
    """Number of interrupts so far."""


def run_slice(folder: Path, jobs: Sequence[Job], budget_s: float, gpus: Sequence[str] = ("0",)) -> int:
    """Start or resume runs for a time; returns the first exit code other than that of a stopped run, else 0.

    Args:
        folder: has the runs and their caches.
        jobs: runs in the order in which they start; finished ones are skipped.
        gpus: ids of the GPUs, each for one run at a time.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    waiting = deque(job for job in jobs if not _is_finished(folder, job))
    running: dict[str, _Running] = {}
    failed = 0

    def left_s() -> float:
        return budget_s - (time.monotonic() - started)

    while running or (waiting and left_s() > STARTING_S):
        for gpu in gpus:
            if gpu not in running and waiting and left_s() > STARTING_S:
                running[gpu] = _started(folder, waiting.popleft(), gpu)
        interrupted = False
        try:
            time.sleep(0.5)
        except KeyboardInterrupt:
            interrupted = True
        for gpu, one in list(running.items()):
            code = one.process.poll()
            if code is not None:
                del running[gpu]
                _note(folder, one)
                failed = failed or (0 if code == 130 else code)
                continue
            due = (left_s() < _reserve_s(one.run)) + (left_s() < MARGIN_S / 2)
            if interrupted:
                due = one.sent + 1
                waiting.clear()
            if due > one.sent:
                one.process.send_signal(signal.SIGINT)
                one.sent += 1
    return failed


def _run_of(folder: Path, job: Job) -> RunDir:
    return RunDir(folder / "runs" / job.name)


def _is_finished(folder: Path, job: Job) -> bool:
    run = _run_of(folder, job)
    return run.path.is_dir() and run.state()[0] == "finished"


def _steps(run: RunDir) -> list[dict[str, Any]]:
    return run.rows("metrics") if run.journal_path("metrics").exists() else []


def _started(folder: Path, job: Job, gpu: str) -> _Running:
    run = _run_of(folder, job)
    order = ["resume", f"runs/{job.name}"]
    if not run.path.is_dir():
        order = ["run", job.recipe, "--name", job.name, *job.overrides]
    command = [sys.executable, "-c", "from kernelrl_core.cli.entry import main; main()", *order]
    environment = {
        **os.environ,
        "KERNELRL_CACHE_DIR": str((folder / "cache").resolve()),
        "CUDA_VISIBLE_DEVICES": gpu,
    }
    # A separate session, so that Ctrl-C in the terminal reaches the run once, through this program.
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    return _Running(job, run, process, len(_steps(run)), time.monotonic())


def _reserve_s(run: RunDir) -> float:
    """Maximum remaining time of the current step, including saving."""
    seconds = [row["time/total"] for row in _steps(run)]
    return MARGIN_S + (1.1 * max(seconds[-12:]) if seconds else UNKNOWN_STEP_S)


def _note(folder: Path, one: _Running) -> None:
    """Record machine, time and steps of a slice of a run."""
    import torch

    if not one.run.path.is_dir():
        return
    steps = len(_steps(one.run))
    row = {
        "run": one.job.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        **machine("torch", "triton", "transformers"),
        "steps": [one.steps_before, steps],
        "seconds": round(time.monotonic() - one.started),
    }
    with (folder / "slices.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(f"{one.run.path}: {one.run.state()[0]}, {steps} steps", file=sys.stderr)


def slices_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """The recorded slices of a run."""
    rows = (json.loads(line) for line in (folder / "slices.jsonl").read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row.get("run", run) == run]


def pack(folder: Path, into: Path, most_bytes: int | None = None) -> list[Path]:
    """Write the state of the runs into files of at most 15 MiB.

    Raises:
        SystemExit: the files would have more than `most_bytes` bytes.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=6) as archive:
        for path in _packed(folder):
            archive.add(path, path.relative_to(folder))
    whole = content.getvalue()
    if most_bytes is not None and len(whole) > most_bytes:
        raise SystemExit(f"the state of {folder} has {len(whole) / 1e6:.1f} MB, more than {most_bytes / 1e6:.1f} MB")
    into.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, start in enumerate(range(0, len(whole), PART_BYTES)):
        part = into / f"state.{number:03}"
        part.write_bytes(whole[start : start + PART_BYTES])
        parts.append(part)
    return parts


def _packed(folder: Path) -> Iterator[Path]:
    yield from (path for path in [folder / "slices.jsonl"] if path.exists())
    for path in sorted((folder / "runs").rglob("*")):
        if path.is_file() and path.suffix not in (".html", ".lock"):
            yield path
    yield from (path for path in sorted((folder / "cache" / CACHED).rglob("*")) if path.is_file())


def unpack(folder: Path, parts: Sequence[Path]) -> None:
    """Restore the state that `pack` wrote."""
    whole = b"".join(part.read_bytes() for part in sorted(parts))
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:gz") as archive:
        # Early versions of Python 3.11 have no filter; the files are our own.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safe)
