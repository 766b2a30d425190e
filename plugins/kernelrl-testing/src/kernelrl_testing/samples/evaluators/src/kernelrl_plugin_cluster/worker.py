"""The worker of the evaluator `cluster`: carries out the order on stdin with evaluator `local`."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from kernelrl_core.api.components import component_block, registry
from kernelrl_core.api.evaluators import EvaluationRequest, EvaluationSettings, Task, from_json, to_json


async def work(order: Mapping[str, Any]) -> Any:
    use = component_block("evaluator", {"use": "local", "workers": 1}, registry())
    evaluator = registry().make("evaluators", use)
    try:
        await evaluator.start()
        if "request" in order:
            return to_json(await evaluator.evaluate(from_json(EvaluationRequest, order["request"])))
        task, settings = from_json(Task, order["task"]), from_json(EvaluationSettings, order["settings"])
        return to_json(await evaluator.audit(task, settings, order["timeout_s"]))
    finally:
        await evaluator.aclose()


if __name__ == "__main__":
    json.dump(asyncio.run(work(json.load(sys.stdin))), sys.stdout)
