"""CPU time of `kernelrl watch` beside a run.

    python benchmarks/watch.py --output benchmarks/results/watch.json

A run directory gets the rows of a real run of recipe `smoke`, repeated to 10,000 samples. A writer then appends
samples, steps and progress as an active run of the quickstart does, and holds the lock of the run. `kernelrl watch`
shows the run on a pseudo-terminal of 40 lines, one view a second. CPU time is that of the whole process: once from its
start to the first view, which includes reading all earlier rows, and then per second of watching.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.journal import Journal

SAMPLES = 10_000
PER_STEP = 128
"""Samples of a step of the quickstart."""
STEP_S = 4.0
"""Seconds of a step, as the quickstart needs on an idle machine."""
SECONDS = 120.0
TARGET_SHARE = 0.03


class Writer:
    """A run directory that grows."""

    def __init__(self, origin: Path, path: Path) -> None:
        shutil.copytree(origin, path)
        self._rows = {name: RunDir(origin).rows(name) for name in ("samples", "metrics")}
        self._run = RunDir(path)
        self._run.lock()
        for name in self._rows:
            self._run.journal_path(name).write_bytes(b"")
        self._journals = {name: Journal(self._run.journal_path(name)) for name in self._rows}
        self._samples = self._steps = 0

    def add(self, n: int) -> None:
        """Add samples, and the metrics of each step that they complete."""
        rows = []
        for number in range(self._samples, self._samples + n):
            row = self._rows["samples"][number % len(self._rows["samples"])]
            rows.append({**row, "sample": f"{number // PER_STEP}.0.{number % PER_STEP}.0"})
        self._journals["samples"].append(rows)
        self._samples += n
        while (self._steps + 1) * PER_STEP <= self._samples:
            row = dict(self._rows["metrics"][self._steps % len(self._rows["metrics"])])
            row |= {"step": self._steps, "progress/done_frac": (self._steps + 1) / 1000}
            self._journals["metrics"].append([row])
            self._steps += 1

    def progress(self) -> None:
        done = self._samples % PER_STEP
        facts: dict[str, Any] = {
            "phase": f"step {self._steps + 1}",
            "detail": "",
            "samples": done,
            "correct": done // 2,
        }
        facts |= {"samples_at_most": PER_STEP, "seconds": 2.0, "samples_per_s": 32.0, "left_s": 1.0, "stopping": False}
        self._run.set_progress(facts)

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        self._run.unlock()


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def drain(terminal: int) -> bool:
    """Read the output of the terminal; whether there was any."""
    seen = False
    while select.select([terminal], [], [], 0)[0]:
        seen = bool(os.read(terminal, 1 << 20))
    return seen


def watch(program: str, writer: Writer, place: Path) -> dict[str, float]:
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    writer.progress()
    process = subprocess.Popen(
        [program, "watch", "grown"], cwd=place, env=environment, stdin=inner, stdout=inner, stderr=inner
    )
    os.close(inner)
    measured = psutil.Process(process.pid)
    try:
        while not drain(terminal):
            time.sleep(0.02)
        time.sleep(0.5)
        start_s, began = cpu_s(measured), time.monotonic()
        written, saved = 0, began
        while (elapsed := time.monotonic() - began) < SECONDS:
            due = int(elapsed / STEP_S * PER_STEP) - written
            if due:
                writer.add(due)
                written += due
            if time.monotonic() - saved >= 2:
                writer.progress()
                saved = time.monotonic()
            drain(terminal)
            time.sleep(0.1)
        used = cpu_s(measured) - start_s
        memory = measured.memory_info().rss
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return {
        "start_cpu_s": round(start_s, 2),
        "cpu_share": round(used / SECONDS, 4),
        "cpu_share_with_start": round((used + start_s) / SECONDS, 4),
        "memory_mib": round(memory / 2**20, 1),
        "samples_written": written,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    output = parser.parse_args().output
    program = shutil.which("kernelrl", path=str(Path(sys.executable).parent)) or shutil.which("kernelrl")
    if program is None:
        sys.exit("the program kernelrl is not installed in this environment")
    machine = provenance("rich", "orjson")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([program, "run", "smoke", "--name", "origin"], cwd=place, check=True, capture_output=True)
        writer = Writer(place / "runs/origin", place / "runs/grown")
        writer.add(SAMPLES)
        megabytes = (place / "runs/grown/samples.jsonl").stat().st_size / 1e6
        measured = watch(program, writer, place)
        writer.close()
    result = {
        "benchmark": "watch",
        "samples_before": SAMPLES,
        "megabytes_before": round(megabytes, 1),
        "seconds": SECONDS,
        **measured,
        "target_share": TARGET_SHARE,
        "reached": measured["cpu_share_with_start"] < TARGET_SHARE,
        "provenance": machine,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if output is not None:
        output.write_text(text + "\n")


if __name__ == "__main__":
    main()
