"""Failover of evaluator `http` when one of two servers no longer responds.

    python benchmarks/service_failover.py [--timeout 10] [--rate 10]

Requests arrive at a fixed rate at an evaluator with two servers, whose test kit's evaluator takes 0.5 s. After some
time one server fails: its process is stopped (SIGSTOP), or a proxy in front of it stalls or drops all connections. The
delay of a request counts from its arrival, or from the failure if that was later, to its result. Failover within one
time-out: no delay is longer than the time-out and the evaluation by the other server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import provenance
from service_soak import ServerProcess, faulty_proxy

from kernelrl_core.types import EvaluationRequest, Outcome
from kernelrl_plugin_http.config import HttpConfig
from kernelrl_plugin_http.evaluator import HttpEvaluator
from kernelrl_testing.values import REFERENCE, make_request

EVALUATION_S = 0.5
BEFORE_S, AFTER_S = 5.0, 1.5
"""Arrivals before the failure in seconds, and after it in time-outs."""
SLACK_S = 2.0
"""For the evaluation by the other server, and a busy machine."""


def request(number: int) -> EvaluationRequest:
    return make_request(f"class ModelNew: pass  # right {number}", REFERENCE, "triton")


async def arrivals(evaluator: HttpEvaluator, fail: Callable[[], None], rate: float, timeout_s: float) -> Any:
    """Delays of all requests that were affected, and of the others."""
    began = time.monotonic()
    failed_at = began + BEFORE_S
    affected: list[float] = []
    others: list[float] = []

    async def one(number: int) -> None:
        arrived = time.monotonic()
        found = await evaluator.evaluate(request(number))
        ended = time.monotonic()
        assert found.outcome is Outcome.CORRECT
        delay = ended - max(arrived, failed_at)
        (affected if delay > 2 * EVALUATION_S else others).append(delay)

    tasks = []
    is_failed = False
    for number in range(int(rate * (BEFORE_S + AFTER_S * timeout_s))):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        if not is_failed and time.monotonic() >= failed_at:
            fail()
            is_failed, failed_at = True, time.monotonic()
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return {
        "requests": len(tasks),
        "affected": len(affected),
        "longest delay, s": round(max(affected, default=0.0), 2),
        "longest delay / time-out": round(max(affected, default=0.0) / timeout_s, 2),
    }


async def measured(kind: str, timeout_s: float, rate: float) -> Any:
    with tempfile.TemporaryDirectory() as first_name, tempfile.TemporaryDirectory() as second_name:
        first = ServerProcess(Path(first_name), EVALUATION_S)
        second = ServerProcess(Path(second_name), EVALUATION_S)
        try:
            async with faulty_proxy(first.url) as proxy:
                fail = {"SIGSTOP": first.pause, "proxy stalls": proxy.stall, "proxy drops": proxy.drop}[kind]
                evaluator = HttpEvaluator(HttpConfig(urls=(proxy.url, second.url), timeout_s=timeout_s))
                try:
                    await evaluator.start()
                    return await arrivals(evaluator, fail, rate, timeout_s)
                finally:
                    await evaluator.aclose()
        finally:
            first.go_on()
            first.end()
            second.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=10.0)
    given = parser.parse_args()
    facts = provenance("starlette", "uvicorn", "httpcore")
    kinds = ("SIGSTOP", "proxy stalls", "proxy drops")
    found = {kind: asyncio.run(measured(kind, given.timeout, given.rate)) for kind in kinds}
    settings = {"time-out, s": given.timeout, "requests per second": given.rate}
    print(json.dumps({**settings, **found, "provenance": facts}, indent=2))
    longest = max(one["longest delay, s"] for one in found.values())
    raise SystemExit(0 if longest <= given.timeout + SLACK_S else 1)


if __name__ == "__main__":
    main()
