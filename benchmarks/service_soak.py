"""Soak of `kernelrl serve`: many clients, cut connections, and a server that is killed and restarted.

    python benchmarks/service_soak.py [--fake 10000] [--real 200] [--clients 64] [--cut 0.05] [--kills 3]

Every request has a connection of its own, through a proxy that cuts a share of them: in the request, before the
response, or in it. The client then sends the request again, as it does while the server is away. The server is killed
with SIGKILL, and started again with the same state, in the first half; the second half shows whether its memory grows.
Two parts: the evaluator of the test kit, and the real evaluator with kernels of four outcomes.

Wrong: an outcome that is not the kernel's. Lost: a request that gets no result, or one that the server still has as
unfinished. Doubled: a result that differs when the request is repeated at the end, or an evaluation that started
again although its server was not killed meanwhile. The program ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil
from provenance import ROOT, provenance

from kernelrl_testing.values import REFERENCE

sys.path.append(str(ROOT / "tests/servers"))

from kernelrl_faulty_proxy import Cut, FaultyProxy, faulty_proxy

SERVER = ROOT / "plugins/kernelrl-service/tests/server_process.py"
EVALUATION_S = 0.02
CAPACITY = 8
"""Of the test kit's evaluator in `server_process.py`."""
WAIT_S = 60
PATIENCE_S = 1800.0
SAMPLE_S = 5.0
REQUEST_BYTES = 200
"""The head of a request alone is about as long."""
KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""
REAL = {
    "correct": KERNEL,
    "incorrect": KERNEL.replace("tl.maximum(x, 0.0)", "x + 1.0"),
    "runtime_error": KERNEL.replace("        return y\n", "        raise RuntimeError('planted')\n"),
    "compile_error": KERNEL.replace("class ModelNew(torch.nn.Module):", "class ModelNew(:"),
}


def fake_candidates(number: int) -> dict[str, str]:
    """Source -> outcome."""
    words = {"right": "correct", "wrong": "incorrect"}
    return {f"class ModelNew: pass  # {word} {index}": outcome
            for index in range(number // 2) for word, outcome in words.items()}  # fmt: skip


def real_candidates(number: int) -> dict[str, str]:
    """Source -> outcome."""
    return {f"{kernel}# {index}\n": outcome for index in range(number // len(REAL)) for outcome, kernel in REAL.items()}


class ServerProcess:
    """A server that can be killed and started again, at the same port and with the same state."""

    def __init__(self, directory: Path, seconds: float | None, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (directory / "relu.py").write_text(REFERENCE)
        fixed = ["--state", "state", "--tasks", "relu.py", "--listen", f"127.0.0.1:{port}"]
        self._command = [sys.executable, str(SERVER), str(seconds), *fixed, *options]
        self._directory = directory
        self.url = f"http://127.0.0.1:{port}"
        self.n_kills = 0
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=self._directory)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server ended with {self._process.wait()}"

    def kill(self) -> float:
        """End the server by SIGKILL; seconds until its judges have ended, too."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        began = time.monotonic()
        self._process.wait()
        _, left = psutil.wait_procs(children, timeout=60)
        assert not left, f"processes of a killed server: {[one.cmdline() for one in left]}"
        self.n_kills += 1
        return time.monotonic() - began

    def memory(self) -> tuple[float, float]:
        """Resident MiB of the server, and of its other processes together."""
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            others = 0.0
            for child in own.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    others += child.memory_info().rss
            return own.memory_info().rss / 2**20, others / 2**20
        return 0.0, 0.0

    def pause(self) -> None:
        """Stop the process: connections stay open, and nothing responds."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        self._process.terminate()
        return self._process.wait(60)


class Soak:
    """The requests of one part, and their observed results."""

    def __init__(self, server: ServerProcess, proxy: FaultyProxy, candidates: Mapping[str, str]) -> None:
        self._server, self._proxy, self._candidates = server, proxy, candidates
        self._todo = list(candidates)
        self._found: dict[str, dict[str, Any]] = {}
        self._problems: Counter[str] = Counter()
        self._advanced = asyncio.Event()
        self.n_sent = 0
        self.memory: list[dict[str, float]] = []
        self.judges_end_s: list[float] = []
        self.restart_s: list[float] = []

    async def run(self, n_clients: int, n_kills: int) -> None:
        """Evaluate all candidates by so many clients."""
        random.shuffle(self._todo)
        sampling = asyncio.create_task(self._sample())
        killing = asyncio.create_task(self._kill(n_kills))
        try:
            await asyncio.gather(*(self._client() for _ in range(n_clients)))
            await killing
        finally:
            sampling.cancel()
        self._note_memory()

    async def _client(self) -> None:
        while self._todo:
            source = self._todo.pop()
            self._found[source] = await self._evaluated(source)
            self._advanced.set()

    async def _evaluated(self, source: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.n_sent += 1
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    status, found = await posted(self._proxy.url, source)
                    if status == 200 and found["status"] == "done":
                        return found
                    if status not in (202, 429, 503):
                        self._problems[
                            f"{status} {found.get('status')} {found.get('type')} {found.get('message')}"
                        ] += 1
                await asyncio.sleep(random.uniform(0.02, 0.2))

    async def _kill(self, n_kills: int) -> None:
        for number in range(n_kills):
            # All kills are in the first half.
            threshold = len(self._candidates) * (number + 1) / (2 * n_kills + 2)
            while len(self._found) < threshold:
                self._advanced.clear()
                await self._advanced.wait()
            self.judges_end_s.append(round(await asyncio.to_thread(self._server.kill), 2))
            began = time.monotonic()
            await asyncio.to_thread(self._server.start)
            self.restart_s.append(round(time.monotonic() - began, 2))

    async def _sample(self) -> None:
        while True:
            self._note_memory()
            await asyncio.sleep(SAMPLE_S)

    def _note_memory(self) -> None:
        own, others = self._server.memory()
        if own:
            row = {"finished": len(self._found), "kills": self._server.n_kills, "server_mib": round(own, 1),
                   "judges_mib": round(others, 1)}  # fmt: skip
            self.memory.append(row)
            print(row, file=sys.stderr, flush=True)

    async def faults(self, started: Counter[str]) -> dict[str, Any]:
        """Counts of wrong, lost and doubled evaluations; see the top of this file.

        Args:
            started: hash of a source -> number of its evaluations; empty: not known.
        """
        wrong = [source for source, found in self._found.items()
                 if found["evaluation"]["outcome"] != self._candidates[source]]  # fmt: skip
        n_lost = len(self._candidates) - len(self._found)
        differing = 0
        for source, found in self._found.items():
            status, again = await posted(self._server.url, source)
            if status != 200 or not again["cached"] or again["evaluation"] != found["evaluation"]:
                differing += 1
        unfinished = await metric(self._server.url, "kernelrl_running") + await metric(
            self._server.url, "kernelrl_queued"
        )
        return {
            "wrong": len(wrong),
            "lost": n_lost + int(unfinished),
            "results that differ when repeated": differing,
            "evaluations that started again": sum(count - 1 for count in started.values()),
            "evaluations that never started": len(self._candidates) - len(started) if started else 0,
            "unexpected responses": dict(self._problems),
        }


async def posted(url: str, source: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an evaluation request on a connection of its own."""
    content = orjson.dumps({"source": source, "backend": "triton", "task_id": "relu"})
    host, port = urlsplit(url).hostname, urlsplit(url).port
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"POST /v1/evaluations?wait={WAIT_S} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        answer = await reader.readuntil(b"\r\n\r\n")
        (size,) = re.findall(rb"content-length: (\d+)", answer)
        return int(answer.split()[1]), orjson.loads(await reader.readexactly(int(size)))
    finally:
        writer.close()


async def metric(url: str, name: str) -> float:
    """Value of a metric of a server."""
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    (value,) = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def cuts(share: float) -> Callable[[], Cut | None]:
    """Cuts a share of the connections, at a random place of the request or the response."""

    def cut() -> Cut | None:
        if random.random() >= share:
            return None
        return random.choice([("request", random.randint(1, REQUEST_BYTES)), ("response", random.randint(1, 400))])

    return cut


@contextlib.asynccontextmanager
async def served(directory: Path, seconds: float | None, share: float, *options: str) -> AsyncIterator[Any]:
    server = ServerProcess(directory, seconds, *options)
    try:
        async with faulty_proxy(server.url, cuts(share)) as proxy:
            yield server, proxy
    finally:
        server.end()


async def part(candidates: Mapping[str, str], seconds: float | None, given: argparse.Namespace, *options: str) -> Any:
    """Figures of one part."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with served(directory, seconds, given.cut, *options) as (server, proxy):
            soak = Soak(server, proxy, candidates)
            began = time.monotonic()
            await soak.run(given.clients, given.kills)
            took_s = time.monotonic() - began
            log = directory / "evaluated.txt"
            started = Counter(log.read_text().split()) if log.exists() else Counter()
            faults = await soak.faults(started)
            unknown = set(started) - {hashlib.sha256(source.encode()).hexdigest() for source in candidates}
            last = [row for row in soak.memory if row["kills"] == given.kills]
            settled = [row for row in last if row["finished"] >= len(candidates) // 2] or last
            return {
                "evaluations": len(candidates),
                "seconds": round(took_s, 1),
                "requests sent": soak.n_sent,
                "connections": proxy.n_connections,
                "connections cut": proxy.n_cut,
                "kills": server.n_kills,
                "seconds until the judges of a killed server ended": soak.judges_end_s,
                "seconds of a restart": soak.restart_s,
                **faults,
                "evaluations of unknown sources": len(unknown),
                "server memory in the second half, MiB": {"first": settled[0]["server_mib"],
                                                           "last": settled[-1]["server_mib"]},
                "memory": soak.memory,
            }  # fmt: skip


def is_faultless(found: Mapping[str, Any], given: argparse.Namespace) -> bool:
    """Whether nothing is wrong, lost or doubled."""
    zero = ("wrong", "lost", "results that differ when repeated", "evaluations that never started",
            "evaluations of unknown sources")  # fmt: skip
    # A killed server had at most so many evaluations in progress.
    again = found["evaluations that started again"] <= given.kills * CAPACITY
    return all(not found[name] for name in zero) and again and not found["unexpected responses"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", type=int, default=10_000)
    parser.add_argument("--real", type=int, default=200)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--cut", type=float, default=0.05)
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    facts = provenance("starlette", "uvicorn", "torch", "triton")
    parts: dict[str, Any] = {}
    if given.fake:
        parts["evaluator of the test kit"] = asyncio.run(part(fake_candidates(given.fake), EVALUATION_S, given))
    if given.real:
        parts["evaluator local"] = asyncio.run(part(real_candidates(given.real), None, given, "evaluator.workers=1"))
    settings = {"clients": given.clients, "share of connections cut": given.cut}
    print(json.dumps({**settings, **parts, "provenance": facts}, indent=2))
    sys.exit(0 if all(is_faultless(found, given) for found in parts.values()) else 1)


if __name__ == "__main__":
    main()
