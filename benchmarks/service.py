"""Overhead and saturation of `kernelrl serve`, against the same evaluator in this process.

    python benchmarks/service.py [--seconds 20] [--rate 50] [--clients 64]

Overhead: requests arrive at a fixed rate, whether or not earlier ones are finished (open loop), from several clients
with connections of their own. The evaluator of the test kit takes 20 ms, so that the service and nothing else is
measured; the figure is the latency beyond that of the evaluator in the process of the client. Saturation: each client
repeats requests whose results are stored, as fast as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from provenance import ROOT, provenance

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.types.serialization import to_json
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import REFERENCE, make_request

SERVER = ROOT / "plugins/kernelrl-service/tests/server_process.py"
EVALUATION_S = 0.02
HEADERS = {"Content-Type": "application/json"}
PATH = "/v1/evaluations?wait=60"


def request(number: int) -> Any:
    return make_request(f"class ModelNew: pass  # right {number}", REFERENCE, "triton")


async def open_loop(send: Callable[[int], Awaitable[None]], rate: float, seconds: float) -> list[float]:
    """Latencies in milliseconds from the time at which each request is due."""
    latencies: list[float] = []
    began = time.monotonic()

    async def one(number: int, due: float) -> None:
        await send(number)
        latencies.append(1000 * (time.monotonic() - due))

    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    return latencies


def figures(latencies: Sequence[float]) -> dict[str, float]:
    ordered = sorted(latencies)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {"median": round(statistics.median(ordered), 2), "p99": round(p99, 2)}


async def directly(rate: float, seconds: float) -> list[float]:
    service = EvaluationService(FakeEvaluator(seconds=EVALUATION_S), cache_dir=None)

    async def send(number: int) -> None:
        await service.evaluate(request(number))

    latencies = await open_loop(send, rate, seconds)
    await service.aclose()
    return latencies


class Client:
    """One connection that is kept. It costs little, so that the service and not the client is measured."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, content: bytes) -> bytes:
        """The body of the response to an evaluation request."""
        async with self._lock:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, self._port)
            reader, writer = self._streams
            head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
            writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            (size,) = re.findall(rb"content-length: (\d+)", answer)
            return await reader.readexactly(int(size))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def by_service(url: str, rate: float, seconds: float, n_clients: int) -> list[float]:
    clients = [Client(url) for _ in range(n_clients)]
    bodies = [orjson.dumps(to_json(request(number))) for number in range(int(rate * seconds) + n_clients)]
    # Each client has its connection before the first request is timed.
    await asyncio.gather(*(client.post(body) for client, body in zip(clients, bodies[-n_clients:], strict=True)))

    async def send(number: int) -> None:
        found = await clients[number % n_clients].post(bodies[number])
        assert b'"status":"done"' in found, found

    latencies = await open_loop(send, rate, seconds)
    for client in clients:
        client.close()
    return latencies


def saturation(url: str, seconds: float, n_clients: int) -> float:
    """Requests per second with stored results."""
    host = urlsplit(url).netloc
    content = orjson.dumps(to_json(request(0)))
    ends = time.monotonic() + seconds

    def repeat(_: int) -> int:
        connection, count = HTTPConnection(host), 0
        while time.monotonic() < ends:
            connection.request("POST", PATH, content, HEADERS)
            found = connection.getresponse()
            assert b'"cached":true' in found.read()[:200]
            count += 1
        return count

    with ThreadPoolExecutor(n_clients) as clients:
        began = time.monotonic()
        total = sum(clients.map(repeat, range(n_clients)))
        return total / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--clients", type=int, default=64)
    given = parser.parse_args()
    facts = provenance("starlette", "uvicorn", "httptools")
    own = asyncio.run(directly(given.rate, given.seconds))
    with tempfile.TemporaryDirectory() as directory:
        task = Path(directory) / "relu.py"
        task.write_text(REFERENCE)
        options = ["--state", "state", "--tasks", str(task), "--listen", "127.0.0.1:0"]
        command = [sys.executable, str(SERVER), str(EVALUATION_S), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
            try:
                assert process.stdout is not None
                url = json.loads(process.stdout.readline())["base_url"]
                served = asyncio.run(by_service(url, given.rate, given.seconds, given.clients))
                per_second = saturation(url, given.seconds / 2, given.clients)
            finally:
                process.terminate()
    alone, through = figures(own), figures(served)
    result = {
        "requests per second": given.rate,
        "clients": given.clients,
        "requests": len(served),
        "evaluator in the process, ms": alone,
        "by the service, ms": through,
        "overhead, ms": {key: round(through[key] - alone[key], 2) for key in alone},
        "stored results per second": round(per_second),
    }
    print(json.dumps({**result, "provenance": facts}, indent=2))


if __name__ == "__main__":
    main()
