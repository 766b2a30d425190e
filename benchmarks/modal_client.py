"""The client of evaluator `modal` against a stand-in for Modal, on a virtual clock: use of capacity, and outages.

    python benchmarks/modal_client.py > benchmarks/results/modal_client.json

The stand-in has 64 containers, which start in 13.8 s and take 1 to 3 s for a kernel when they are warm: figures of the
one user of the published client who reported any. It needs no account. It says nothing about Modal's own latency under
load; the stand-in adds 50 ms to each call. An outage fails a call before or after its execution; after three outages in
a row an evaluation ends as an infrastructure error, which is masked and counted (expected: 1.25 of 10,000).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from provenance import ROOT, provenance

sys.path.insert(0, str(ROOT / "plugins/kernelrl-plugin-modal/tests"))

from modal_standin import COLD_START_S, WARM_S, Function, evaluator_on, run_virtually, served

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.errors import InfrastructureError, MissingPrerequisite
from kernelrl_testing.values import make_request

CONTAINERS = 64
STEP = 512
"""Evaluations of one step of Kevin's size."""
MANY = 10_000
OUTAGES = 0.05


async def measure(n: int, outages: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    def serve(message: dict[str, Any]) -> dict[str, Any]:
        if message["do"] == "evaluate":
            seen.append(message["request"]["source_sha256"])
        return served(message)

    function = Function(CONTAINERS, serve, outages=outages, seed=1)
    service = EvaluationService(evaluator_on(function, max_containers=CONTAINERS), cache_dir=None)
    while True:
        try:
            await service.start("triton")
            break
        except MissingPrerequisite:
            continue  # an outage at the start; a user tries again
    begin_s, before_s, wall_s = loop.time(), function.busy_s, time.monotonic()
    requests = [make_request(f"# {number}", backend="triton") for number in range(n)]
    found = await asyncio.gather(*(service.evaluate(request) for request in requests), return_exceptions=True)
    took_s, work_s = loop.time() - begin_s, function.busy_s - before_s
    await service.aclose()
    failed = [one for one in found if isinstance(one, InfrastructureError)]
    details = [None if isinstance(one, BaseException) else one.detail for one in found]
    # One container is warm from the start; the others start with the first requests.
    bound_s = (work_s + (CONTAINERS - 1) * COLD_START_S) / CONTAINERS
    return {
        "evaluations": n,
        "outages_share": outages,
        "took_s": round(took_s, 1),
        "bound_s": round(bound_s, 1),
        "use_of_capacity": round(bound_s / took_s, 4),
        "per_hour": round(n / took_s * 3600),
        "wrong": sum(
            detail not in (None, request.source_sha256) for request, detail in zip(requests, details, strict=True)
        ),
        "lost": n - len(failed) - sum(detail is not None for detail in details),
        "infrastructure_errors_after_three_tries": len(failed),
        "doubled": len(seen) - len(set(seen)),
        "containers_left_busy": CONTAINERS - function.n_free - function._cold,
        "client_cpu_ms_per_evaluation": round((time.monotonic() - wall_s) / n * 1e3, 2),
    }


def main() -> None:
    found: dict[str, Any] = {"provenance": provenance("modal")}
    found["stand_in"] = {"containers": CONTAINERS, "cold_start_s": COLD_START_S, "warm_s": WARM_S, "call_s": 0.05}
    found["one step"] = run_virtually(measure(STEP, 0.0))
    found["many"] = run_virtually(measure(MANY, 0.0))
    found["many, with outages"] = run_virtually(measure(MANY, OUTAGES))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
