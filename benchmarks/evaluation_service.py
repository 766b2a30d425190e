"""Overhead of the core's evaluation service: 256 concurrent waits, a straggler, a cancelled waiter.

    python benchmarks/evaluation_service.py

The evaluator is a fake that sleeps, so only the service is measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from provenance import provenance

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome
from kernelrl_testing.values import make_request


class Sleeper(Evaluator):
    """Sleeps for the number of seconds in the source."""

    capacity = 256

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await asyncio.sleep(float(request.source.split()[0]))
        return Evaluation(Outcome.CORRECT)


def request(seconds: float, number: int) -> EvaluationRequest:
    return make_request(f"{seconds} {number}")


async def measure() -> dict[str, Any]:
    service = EvaluationService(Sleeper(), cache_dir=None)
    begin = time.monotonic()
    await asyncio.gather(*(service.evaluate(request(1.0, n)) for n in range(256)))
    together = time.monotonic() - begin

    begin = time.monotonic()
    straggler = asyncio.create_task(service.evaluate(request(30.0, 0)))
    await asyncio.gather(*(service.evaluate(request(1.0, 1000 + n)) for n in range(255)))
    beside = time.monotonic() - begin
    await straggler
    slow = time.monotonic() - begin

    waiters = [asyncio.create_task(service.evaluate(request(1.0, 5000))) for _ in range(32)]
    await asyncio.sleep(0.2)
    waiters[0].cancel()
    answers = await asyncio.gather(*waiters, return_exceptions=True)
    await service.aclose()
    return {
        "256 one-second evaluations at capacity 256, seconds": round(together, 3),
        "255 one-second evaluations beside a straggler of 30 s, seconds": round(beside, 3),
        "the straggler, seconds": round(slow, 3),
        "waiters of 32 with an evaluation after the first was cancelled": sum(
            isinstance(a, Evaluation) for a in answers
        ),
    }


def main() -> None:
    print(json.dumps({"provenance": provenance(), **asyncio.run(measure())}, indent=1))


if __name__ == "__main__":
    main()
