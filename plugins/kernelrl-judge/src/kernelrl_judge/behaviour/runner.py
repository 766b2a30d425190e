"""Run references of others in sandboxes, many per sandbox. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import attrs

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_judge.peer.nursery import Scratch

__all__ = ["ReferenceProgram", "ReferenceRunner"]

_PROGRAM = "kernelrl_judge.runner.reference_zygote"
_PER_BATCH = 64
_LIMIT_S = 30.0
"""Wall-clock time of one reference, with all its calls, whose CPU time is limited too: other programs may compute."""
_START_S = 120.0


@attrs.frozen
class ReferenceProgram:
    """A reference and its calls."""

    source: str
    calls: tuple[int, ...] | None
    """Numbers of the probes; None: draw the inputs of the reference instead."""
    entry: str = "Model"
    """Name of its class."""


class ReferenceRunner:
    """Processes that execute references in sandboxes. Use as a context manager.

    Args:
        jobs: number of processes; None: one per CPU core.
        limit_s: wall-clock time of one reference, with all its calls.

    Raises:
        InfrastructureError: a process ends without a reply, in `run`.
    """

    def __init__(self, jobs: int | None = None, limit_s: float = _LIMIT_S) -> None:
        self._limit_s = limit_s
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._processes: list[tuple[subprocess.Popen[bytes], Scratch]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(self._jobs)
        self.missing_layers: set[str] = set()
        """Layers of the sandbox that this machine does not permit."""

    def __enter__(self) -> ReferenceRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process, scratch in self._processes:
            process.kill()
            process.wait()
            scratch.close()

    def run(self, programs: Sequence[ReferenceProgram], probes: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        """The result of each program, in order: outputs for each call, or drawn inputs; None if it fails.

        Args:
            probes: `init` and `inputs` as `kernelrl_judge.runner.reference_values.encoded` returns them.
        """
        batches = [programs[start : start + _PER_BATCH] for start in range(0, len(programs), _PER_BATCH)]
        for results in self._pool.map(lambda batch: self._batch(batch, probes), batches):
            yield from results

    def _batch(self, programs: Sequence[ReferenceProgram], probes: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Results of a batch. A program that ends its whole sandbox has none, and the rest gets another one."""
        results: list[Any] = []
        while len(results) < len(programs):
            rest = programs[len(results) :]
            lines = self._reply(rest, probes).split(b"\n")
            found = [_parsed(line) for line in lines[1 : len(rest) + 1] if line]
            self.missing_layers |= {layer for layer in _parsed(lines[0]) or () if isinstance(layer, str)}
            results += found
            if len(found) < len(rest):
                results.append(None)
        return results[: len(programs)]

    def _reply(self, programs: Sequence[ReferenceProgram], probes: Sequence[Mapping[str, Any]]) -> bytes:
        used = sorted({number for program in programs for number in program.calls or ()})
        position = {number: index for index, number in enumerate(used)}
        request = {
            "programs": [
                {
                    "source": program.source,
                    "entry": program.entry,
                    "calls": None if program.calls is None else [position[number] for number in program.calls],
                }
                for program in programs
            ],
            "probes": [probes[number] for number in used],
            "limit_s": self._limit_s,
            "batch_limit_s": _START_S + self._limit_s * len(programs),
        }
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode(errors="surrogatepass") + b"\n")
            process.stdin.flush()
            header = process.stdout.read(8)
            reply = process.stdout.read(struct.unpack("<Q", header)[0]) if len(header) == 8 else b""
        except OSError:
            reply = b""
        if b"\n" not in reply:
            raise InfrastructureError(
                "the process that calls references of a corpus ended without a reply",
                fix="kernelrl doctor; without behaviour: --protect none",
            )
        self._idle.put(process)
        return reply

    def _process(self) -> subprocess.Popen[bytes]:
        """A process that serves no batch. There are at most as many as threads of the pool."""
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        from kernelrl_core.api.config import cache_directory

        scratch = Scratch()
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": scratch.path, "TMPDIR": scratch.path}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment["KERNELRL_CACHE_DIR"] = os.path.abspath(cache_directory())
        environment |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, scratch.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._processes.append((process, scratch))
        return process


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
