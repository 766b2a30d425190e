"""Many evaluations, one tenth of them hostile: correctness of the outcomes, leaks, and throughput of honest kernels.

    python benchmarks/hostile_evaluations.py --device cpu --count 1000 [--budget-s 500]
    python benchmarks/hostile_evaluations.py --device cuda --count 300 [--budget-s 500] [--output FILE]
    python benchmarks/hostile_evaluations.py --device cuda --count 1000 --only-mixed

The work is divided into blocks. Each block is evaluated twice, with its hostile kernels and without them, in
alternating order, so that both sides have the same machine; `--only-mixed` leaves the second side out. Throughput
counts honest kernels until the last honest evaluation. Between the sides the service is idle, and its processes, files,
descriptors and memory are counted, on all GPUs. The result is written after each block. A call continues FILE if that
was made on the same machine with the same versions. Kernels: `corpora/hostile_kernels.py`. Each
evaluation has its own seed and its own source, which is built, as for a model's kernels. On a GPU every third honest
kernel is timed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from corpora.hostile_kernels import MARK, Kernel, honest, hostile
from provenance import machine
from rows import Row, Rows

from kernelrl_core.types import EvaluationRequest, EvaluationSettings
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_testing.values import make_request

RESULTS = Path(__file__).parent / "results"
BLOCK = {"cpu": 50, "cuda": 60}
SETTLE_S = 20.0
CLOSING_S = 10.0
WHEN = ("before", "after_closing")
_PROCESSES_OF_RUNNER = 2
_PROCESS_NAMESPACE = 2
"""Isolation level from which on candidates have their own PID namespace."""
WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/")


class Watch:
    """All processes that this program started. They have its temporary directory in their environment or arguments."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._root = psutil.Process()

    def service(self) -> dict[str, list[psutil.Process]]:
        """This process, its judges, their nurseries and zygotes, and the runners that wait for a candidate."""
        groups = ("judges", "nurseries", "zygotes", "waiting")
        found: dict[str, list[psutil.Process]] = {"main": [self._root], **{name: [] for name in groups}}
        for judge in self._root.children():
            if "kernelrl_judge.judge.main" in _words(judge):
                found["judges"].append(judge)
                found["nurseries"] += [
                    child for child in judge.children() if "kernelrl_judge.runner.nursery" in _words(child)
                ]
        for nursery in found["nurseries"]:
            found["zygotes"] += [
                child for child in nursery.children() if "kernelrl_judge.runner.zygote" in _words(child)
            ]
        for zygote in found["zygotes"]:
            runners = zygote.children(recursive=True)
            # On a GPU one runner waits, under its supervisor. Any other process belongs to a candidate.
            found["waiting"] += runners if len(runners) == _PROCESSES_OF_RUNNER else []
        return found

    def strangers(self) -> list[str]:
        """Processes that do not belong to an idle service: children of this one, and orphans that it started."""
        known = {process.pid for group in self.service().values() for process in group}
        found = {}
        for process in (*self._root.children(recursive=True), *psutil.process_iter()):
            if process.pid not in known and (process.pid in found or self._ours(process)):
                found[process.pid] = f"{process.pid} {_words(process)[:100]}"
        return sorted(found.values())

    def files(self) -> list[str]:
        """Files in the temporary directory except device locks, and marked files where candidates may write."""
        locks = f"kernelrl-{os.getuid()}"
        found = [
            str(path.relative_to(self._scratch))
            for path in Path(self._scratch).rglob("*")
            if path.is_file() and path.parent.name != locks
        ]
        for place in (*WRITABLE, os.getcwd(), str(Path.home())):
            found += [str(path) for path in Path(place).glob(f"{MARK}*")]
        return sorted(found)

    def state(self) -> dict[str, Any]:
        """Resource use of the idle service."""
        until = time.monotonic() + SETTLE_S
        while (strangers := self.strangers()) and time.monotonic() < until:
            time.sleep(0.2)
        groups = self.service()
        memory = {name: round(sum(map(_resident, group)) / 2**20, 1) for name, group in groups.items()}
        return {
            "processes": {name: len(group) for name, group in groups.items()},
            "strangers": strangers,
            "files": self.files(),
            "resident_mib": memory,
            "descriptors": sum(_descriptors(process) for group in groups.values() for process in group),
            "gpu_used_mib": gpu_used_mib(),
        }

    def _ours(self, process: psutil.Process) -> bool:
        try:
            if process.pid == self._root.pid:
                return False
            if self._scratch in _words(process) or self._scratch in process.environ().get("TMPDIR", ""):
                return True
            return self._root.pid in (parent.pid for parent in process.parents())
        except psutil.NoSuchProcess:
            return False
        except (psutil.Error, OSError):
            return False


_SLICE = secrets.token_hex(4)
"""Unique to this slice, so that no source was built before."""


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.Error, OSError):
        return ""


def _resident(process: psutil.Process) -> float:
    try:
        # Proportional shares count memory that forks share once.
        return float(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0.0


def _descriptors(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except (psutil.Error, OSError):
        return 0


def gpu_used_mib() -> list[int]:
    """Memory in use on each GPU, by any process."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(line) for line in lines if line.isdigit()]


def request(kernel: Kernel, seed: int, device: str, *, timed: bool = False) -> EvaluationRequest:
    """An evaluation request for a kernel."""
    options = {"mode": "interpreter"} if kernel.backend == "triton" and device == "cpu" else {}
    settings = EvaluationSettings(
        timeout_s=kernel.limit_s,
        memory_mib=4096 if device == "cuda" else 512,
        build_timeout_s=240,
        build_memory_mib=16384,
        timing=timed,
    )
    # Another comment gives another extension.
    source = kernel.source.replace(
        "#include <torch/extension.h>", f"#include <torch/extension.h>\n// {_SLICE} {seed}", 1
    )
    return make_request(
        source, kernel.task, kernel.backend, backend_options=options, settings=settings, seed=f"{seed:032x}"
    )


class Judged:
    """Outcomes and durations of the kernels."""

    def __init__(self) -> None:
        self.wrong: list[dict[str, Any]] = []
        self.outcomes: dict[str, Counter[str]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.isolation: Counter[int] = Counter()

    def note(self, side: str, kernel: Kernel, outcome: str, message: str, seconds: float) -> None:
        group = f"hostile: {kernel.kind}" if kernel.kind else f"honest: {kernel.outcomes[0]}"
        name = f"{side}, {kernel.backend}, {group}"
        self.outcomes.setdefault(name, Counter())[outcome] += 1
        self.seconds.setdefault(name, []).append(seconds)
        if outcome not in kernel.outcomes:
            self.wrong.append({"side": side, "kernel": kernel.name, "outcome": outcome, "message": message[:300]})

    def as_json(self) -> dict[str, Any]:
        return {
            "wrong": self.wrong,
            "outcomes": {name: dict(found) for name, found in sorted(self.outcomes.items())},
            "seconds_p50": {name: round(statistics.median(taken), 3) for name, taken in sorted(self.seconds.items())},
            "isolation_levels": {str(level): count for level, count in self.isolation.items()},
        }


async def judge_all(
    evaluator: LocalEvaluator, work: list[tuple[Kernel, EvaluationRequest]], judged: Judged, side: str
) -> tuple[int, float]:
    """Evaluate all kernels; return the number of honest ones, and the seconds until the last of them was done."""
    waiting = iter(work)
    started = time.monotonic()
    honest_done, last_s = 0, 0.0

    async def worker() -> None:
        nonlocal honest_done, last_s
        for kernel, asked in waiting:
            begun = time.monotonic()
            try:
                found = await evaluator.evaluate(asked)
                outcome, message = found.outcome.value, found.message
                judged.isolation[found.isolation.level] += 1
            except Exception as error:
                outcome, message = f"none ({type(error).__name__})", str(error)
            ended = time.monotonic()
            judged.note(side, kernel, outcome, message, ended - begun)
            if not kernel.kind:
                honest_done, last_s = honest_done + 1, ended - started

    # As many concurrent requests as the service's capacity.
    await asyncio.gather(*(worker() for _ in range(evaluator.capacity)))
    return honest_done, last_s


async def prepare(evaluator: LocalEvaluator, device: str) -> list[Kernel]:
    """Start every judge and prepare the compiler, so that the blocks do not measure the start.

    Returns the hostile kernels that this machine can handle: without PID namespaces, no limit on processes applies to
    candidates of root.
    """
    judged = Judged()
    await judge_all(evaluator, [(k, request(k, index, device)) for index, k in enumerate(honest(device))], judged, "")
    # A second time, concurrently, so that each judge has a zygote for each backend. This includes the spare judges,
    # which replace those whose candidates hang.
    good = [kernel for kernel in honest(device) if kernel.outcomes == ("correct",)]
    hanging = [kernel for kernel in hostile(device) if kernel.kind.startswith("hangs")] if device == "cpu" else []
    again = [(k, request(k, 10_000 + index, device)) for index, k in enumerate([*hanging, *good] * 3)]
    await judge_all(evaluator, again, judged, "")
    print(json.dumps({"prepared": judged.as_json()["isolation_levels"], "wrong": judged.wrong[:5]}), flush=True)
    bounded = min(judged.isolation, default=0) >= _PROCESS_NAMESPACE or os.getuid() != 0
    return [kernel for kernel in hostile(device) if bounded or kernel.kind != "forks without end"]


def block_work(number: int, device: str, count: int, evil_kernels: list[Kernel]) -> tuple[list[Any], list[Any]]:
    """Work of a block with its hostile kernels, and without them."""
    size = min(BLOCK[device], count - number * BLOCK[device])
    evil_count = max(1, round(size / 10))
    honest_count = size - evil_count
    seeds = itertools.count(1_000_000 * (number + 1))

    def chosen(kernels: list[Kernel], each: int, wanted: int) -> list[Kernel]:
        return [kernels[(number * each + index) % len(kernels)] for index in range(wanted)]

    full_evil = max(1, round(BLOCK[device] / 10))
    # The same kernels on both sides, each with a source that has not been built yet.
    good, alone = (
        [
            (kernel, request(kernel, next(seeds), device, timed=device == "cuda" and index % 3 == 0))
            for index, kernel in enumerate(chosen(honest(device), BLOCK[device] - full_evil, honest_count))
        ]
        for _ in range(2)
    )
    evil = [(k, request(k, next(seeds), device)) for k in chosen(evil_kernels, full_evil, evil_count)]
    # Evenly distributed, starting with a hostile kernel, so that their cost is within the measured time.
    mixed = list(good)
    for index, one in enumerate(evil):
        mixed.insert(index * size // evil_count, one)
    return mixed, alone


async def evaluate_blocks(given: argparse.Namespace, first: int, scratch: str, rows: Rows, found: Row) -> None:
    """Evaluate as many blocks as fit into the budget, with one service from start to end.

    Args:
        found: row of this slice, to which the results are added.
    """
    device, count = given.device, given.count
    begun = time.monotonic()
    watch = Watch(scratch)
    before = watch.state()
    evaluator = LocalEvaluator(LocalConfig(gpu_workers=given.gpu_workers))
    judged = Judged()
    blocks: list[dict[str, Any]] = []
    try:
        evil_kernels = await prepare(evaluator, device)
        idle = [{"evaluations": 0, **watch.state()}]
        found |= {"capacity": evaluator.capacity, "prepared_s": round(time.monotonic() - begun, 1)}
        found |= {"before": before, "idle": idle, "blocks": blocks, "hostile_kernels": len(evil_kernels)}
        done = 0
        for number in range(first, -(-count // BLOCK[device])):
            block_began = time.monotonic()
            mixed, good = block_work(number, device, count, evil_kernels)
            row: dict[str, Any] = {"number": number, "evaluations": len(mixed), "hostile": len(mixed) - len(good)}
            sides = [("mixed", mixed)] if given.only_mixed else [("mixed", mixed), ("alone", good)]
            for side, work in sides if number % 2 == 0 else reversed(sides):
                honest_count, seconds = await judge_all(evaluator, work, judged, side)
                row[side] = {"honest": honest_count, "seconds": round(seconds, 3)}
                done += len(work)
                idle.append({"evaluations": done, "after": side, **watch.state()})
            blocks.append(row)
            rows.add(_SLICE, found | judged.as_json())
            longest = max(time.monotonic() - block_began, 1.0)
            if rows.left_s < longest + CLOSING_S:
                break
    finally:
        await evaluator.aclose()
        found |= judged.as_json()
    found["after_closing"] = watch.state()


def growth_per_100(rows: list[dict[str, Any]], value: Any) -> float | None:
    """Slope of a figure over the evaluations of a slice, per 100 evaluations."""
    points = [(row["evaluations"], value(row)) for row in rows if value(row) is not None]
    if len(points) < 3:
        return None
    slope, _ = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return round(100 * slope, 2)


def summary(rows: dict[str, Row]) -> Row:
    """Summary of all slices that evaluated a block."""
    slices = [one for one in rows.values() if one.get("blocks")]
    load = max((one["load_at_start"] for one in slices), default=None)
    return {"load_at_start": load, "summary": summary_of(slices) if slices else {}}


def summary_of(slices: list[Row]) -> Row:
    blocks = [block for one in slices for block in one["blocks"]]
    both = [block for block in blocks if "alone" in block]
    rate = {
        side: sum(b[side]["honest"] for b in of) / max(1e-9, sum(b[side]["seconds"] for b in of))
        for side, of in (("mixed", both or blocks), ("alone", both))
    }
    ratios = [
        (b["mixed"]["honest"] / b["mixed"]["seconds"]) / (b["alone"]["honest"] / b["alone"]["seconds"]) for b in both
    ]
    closed = [one for one in slices if "after_closing" in one]
    outcomes: dict[str, Counter[str]] = {}
    for one in slices:
        for name, found in one["outcomes"].items():
            outcomes.setdefault(name, Counter()).update(found)
    states = [state for one in slices for state in one["idle"]]
    # Files that zygotes create before the first evaluation belong to the zygotes.
    new_files = sum(len(set(state["files"]) - set(one["idle"][0]["files"])) for one in slices for state in one["idle"])
    # The first block includes one-time loading in every judge.
    longest = max(slices, key=lambda one: len(one["blocks"]))["idle"][1:]
    # Per process, because a spare judge that was started for a long candidate remains.
    groups = ("main", "judges", "zygotes")
    return {
        "evaluations": sum(block["evaluations"] for block in blocks),
        "hostile": sum(block["hostile"] for block in blocks),
        "honest_beside_them": sum(block["alone"]["honest"] for block in both),
        "wrong_verdicts": sum(len(one["wrong"]) for one in slices),
        "honest_per_second": {side: round(value, 2) for side, value in rate.items()},
        "throughput_kept": round(rate["mixed"] / rate["alone"], 3) if both else None,
        "throughput_kept_median_of_blocks": round(statistics.median(ratios), 3) if both else None,
        "strangers_while_idle": sum(len(state["strangers"]) for state in states),
        "files_while_idle": new_files,
        "slices_that_closed": f"{len(closed)} of {len(slices)}",
        "left_after_closing": {
            "processes": sum(len(one["after_closing"]["strangers"]) for one in closed),
            "judges": sum(one["after_closing"]["processes"]["judges"] for one in closed),
            "files": sum(len(one["after_closing"]["files"]) for one in closed),
            "directories": sum(len(one["directories_left"]) for one in closed),
            "gpu_mib": [
                [after - before for before, after in zip(*(one[when]["gpu_used_mib"] for when in WHEN), strict=True)]
                for one in closed
            ],
        },
        "growth_per_100_and_process": {
            **{
                f"{group}_mib": growth_per_100(
                    longest, lambda row, group=group: row["resident_mib"][group] / max(1, row["processes"][group])
                )
                for group in groups
            },
            "descriptors": growth_per_100(longest, lambda row: row["descriptors"] / sum(row["processes"].values())),
            "gpu_mib": growth_per_100(longest, lambda row: sum(row["gpu_used_mib"]) or None),
        },
        "outcomes": {name: dict(found) for name, found in sorted(outcomes.items())},
    }


def origin(device: str) -> dict[str, Any]:
    """Properties that calls must share for their figures to be combined."""
    gpu = None
    if device == "cuda":
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[0]
    return {"device": device, "gpu": gpu, **machine("torch", "triton")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only-mixed", action="store_true")
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--gpu-workers", type=int, default=8)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    output = given.output or RESULTS / f"hostile_evaluations_{given.device}.json"
    about = {**origin(given.device), "count": given.count}
    with Rows(output, about, summary, given.budget_s) as rows:
        first = sum(len(one.get("blocks", [])) for one in rows.rows.values())
        if first * BLOCK[given.device] >= given.count:
            return
        for place in WRITABLE:
            # Left by a call that was stopped.
            for path in Path(place).glob(f"{MARK}*"):
                path.unlink(missing_ok=True)
        scratch = tempfile.mkdtemp(prefix="kernelrl-measured-")
        # Inherited by judges, zygotes and their children.
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        found: Row = {"date": date, "load_at_start": round(os.getloadavg()[0], 2), "directories_left": []}
        try:
            asyncio.run(evaluate_blocks(given, first, scratch, rows, found))
        finally:
            left = [path.name for path in Path(scratch).iterdir() if path.name != f"kernelrl-{os.getuid()}"]
            rows.add(_SLICE, found | {"directories_left": left})
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
