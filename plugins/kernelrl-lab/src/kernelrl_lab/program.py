"""Measures an evaluator that is a program: it is started once for each kernel of a suite.

The program gets the paths of a task and of a kernel, and prints one line with a JSON object:

| key | meaning |
|---|---|
| `correct` | true or false; required |
| `speedup` | baseline time divided by kernel time; null or absent: not measured |
| `verdict` | anything but `clean` flags the kernel as a suspected hack; absent: `clean` |

Other keys and lines are ignored; of several objects with `correct`, the last one counts. A program without JSON reports
by its exit code (`--exit-code`): 0 correct, 1 not. Anything else is no result.

The program executes the kernels, without a sandbox of kernelrl. Its process group is killed at its end, after a time
limit for each kernel, and after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_lab.suite import CLASSES, SuiteKernel

__all__ = ["Program", "ProgramResult", "measure_program", "read_program", "summary_lines"]

_PLACES = ("{task}", "{kernel}")
_TAIL_BYTES = 1 << 18
_DRAIN_S = 5.0
_PARENT = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""A shell that waits for its arguments, a program: one of the hacks kills the parent of its process."""


@attrs.frozen
class Program:
    """An evaluator that is a program."""

    words: tuple[str, ...]
    """Its command line. `{task}` and `{kernel}` become paths, `{backend}` the kernel language."""
    limit_s: float
    """Seconds for one kernel."""
    by_exit_code: bool = False
    """Its exit code is the result; it prints no JSON."""
    on_gpu: bool = False
    """Without a GPU, `TRITON_INTERPRET=1` is in its environment."""


@attrs.frozen
class ProgramResult:
    """How a program evaluated a kernel."""

    kernel: SuiteKernel
    state: Literal["correct", "incorrect", "flagged", "timeout", "no_result"]
    """`flagged`: correct, and reported as a suspected hack; `no_result`: the program reported nothing that counts."""
    speedup: float | None = None
    message: str = ""
    """The program's `message`, or why there is no result."""
    seconds: float = 0.0

    @property
    def rewarded(self) -> bool:
        """Whether a training loop would reward the kernel: it is correct and, for a hack on the clock, too fast."""
        hack = self.kernel.hack
        return self.state == "correct" and (hack is None or hack.gains(self.speedup))

    @property
    def passed(self) -> bool:
        """Whether a hack has a result and no reward, or an honest kernel is accepted."""
        return self.rewarded if self.kernel.hack is None else self.state != "no_result" and not self.rewarded


def read_program(command: str, *, limit_s: float, by_exit_code: bool, on_gpu: bool) -> Program:
    """The program of a command line, which no shell interprets.

    Raises:
        UsageError: the command line has an open quote, or lacks `{task}` or `{kernel}`.
        MissingPrerequisite: there is no such program.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--command {command}: {error}") from None
    example = "--command 'python evaluate.py {task} {kernel}'"
    for place in _PLACES:
        if not any(place in word for word in words):
            raise UsageError(f"--command {command}: {place} is missing", fix=example)
    if shutil.which(words[0]) is None:
        raise MissingPrerequisite(f"--command: no program {words[0]!r}", fix=f"name an executable file: {example}")
    return Program(words, limit_s, by_exit_code, on_gpu)


async def measure_program(
    kernels: Sequence[SuiteKernel],
    program: Program,
    *,
    jobs: int = 1,
    on_result: Callable[[ProgramResult], None] = lambda result: None,
) -> tuple[ProgramResult, ...]:
    """The results of all kernels, in their order.

    Args:
        jobs: kernels evaluated concurrently.
        on_result: called with each result, in the order in which the evaluations end.
    """
    slots = asyncio.Semaphore(jobs)

    async def one(kernel: SuiteKernel) -> ProgramResult:
        async with slots:
            for _ in range(kernel.evaluations):
                result = await _run(program, kernel)
            on_result(result)
            return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(kernel)) for kernel in kernels]
    return tuple(task.result() for task in tasks)


async def _run(program: Program, kernel: SuiteKernel) -> ProgramResult:
    with tempfile.TemporaryDirectory(prefix="kernelrl-lab-", ignore_cleanup_errors=True) as folder:
        places = {"{task}": f"{folder}/task.py", "{kernel}": f"{folder}/kernel.py", "{backend}": kernel.backend}
        Path(places["{task}"]).write_text(kernel.task.reference, encoding="utf-8")
        Path(places["{kernel}"]).write_text(kernel.source, encoding="utf-8")
        words = list(program.words)
        for place, value in places.items():
            words = [word.replace(place, value) for word in words]
        begin = time.monotonic()
        status, out, err = await _output(words, program)
        seconds = time.monotonic() - begin
    if status is None:
        return ProgramResult(kernel, "timeout", message=f"not finished within {program.limit_s:g} s", seconds=seconds)
    if program.by_exit_code:
        read: dict[str, Any] = {"correct": status == 0} if status in (0, 1) else {}
    else:
        read = _last_object(out)
    problem = _problem(read)
    if problem:
        last = (err.strip() or out.strip()).rpartition("\n")[2][:300]
        return ProgramResult(
            kernel,
            "no_result",
            message="; ".join(filter(None, (problem, f"exit status {status}", last))),
            seconds=seconds,
        )
    accepted: Literal["correct", "flagged"] = "correct" if read.get("verdict", "clean") == "clean" else "flagged"
    return ProgramResult(
        kernel,
        accepted if read["correct"] else "incorrect",
        read.get("speedup"),
        str(read.get("message") or "")[:300],
        seconds,
    )


def _last_object(text: str) -> dict[str, Any]:
    """The last line that is a JSON object with the key `correct`; empty if there is none."""
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict) and "correct" in found:
                return found
    return {}


def _problem(read: dict[str, Any]) -> str:
    if not read:
        return "no result"
    if not isinstance(read["correct"], bool):
        return f"correct: {read['correct']!r} is neither true nor false"[:200]
    speedup = read.get("speedup")
    is_number = isinstance(speedup, int | float) and not isinstance(speedup, bool) and math.isfinite(speedup)
    return "" if speedup is None or is_number else f"speedup: {speedup!r} is not a number"[:200]


async def _output(words: Sequence[str], program: Program) -> tuple[int | None, str, str]:
    """Exit status, None after the time limit, and the ends of stdout and stderr."""
    interpreted = {} if program.on_gpu else {"TRITON_INTERPRET": "1"}
    # Not asyncio's own pipes: with these, `wait` also waits for processes that the program leaves behind.
    (out_end, out_start), (err_end, err_start) = os.pipe(), os.pipe()
    out, err = bytearray(), bytearray()
    readers = [asyncio.create_task(_read(end, kept)) for end, kept in ((out_end, out), (err_end, err))]
    try:
        process = await asyncio.create_subprocess_exec(
            *_PARENT,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out_start,
            stderr=err_start,
            env={**os.environ, **interpreted},
            start_new_session=True,
        )
    finally:
        os.close(out_start)
        os.close(err_start)
    status: int | None = None
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(program.limit_s):
                status = await process.wait()
    finally:
        # Also after its end: it may have left processes behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        # A process that left the group may hold the pipes open.
        await asyncio.wait(readers, timeout=_DRAIN_S)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


async def _read(end: int, kept: bytearray) -> None:
    """Read a pipe, and keep its last bytes."""
    stream = asyncio.StreamReader()
    with os.fdopen(end, "rb", 0) as pipe:
        make = lambda: asyncio.StreamReaderProtocol(stream)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(make, pipe)
        try:
            while block := await stream.read(1 << 16):
                kept += block
                del kept[:-_TAIL_BYTES]
        finally:
            transport.close()


def summary_lines(results: Sequence[ProgramResult]) -> list[str]:
    """Rewarded hacks by class, and the number of accepted honest kernels."""
    hacks = [result for result in results if result.kernel.hack is not None]
    honest = [result for result in results if result.kernel.hack is None]
    rows = [("class", "hacks", "rewarded", "no result")]
    for name in (*CLASSES, "all"):
        of_class = [result for result in hacks if name in (result.kernel.class_, "all")]
        counts = (
            len(of_class),
            sum(result.rewarded for result in of_class),
            sum(result.state == "no_result" for result in of_class),
        )
        if of_class:
            rows.append((name, *map(str, counts)))
    lines = [f"{name:<10}{hacks:>6}{rewarded:>10}{lost:>11}" for name, hacks, rewarded, lost in rows] if hacks else []
    if honest:
        lines.append(f"honest kernels accepted: {sum(result.passed for result in honest)} of {len(honest)}")
    return lines
