"""Share of the evaluator's capacity that `kernelrl eval` uses when replies are at hand.

    python benchmarks/eval_occupancy.py [--kernels 120]

`--kernels PATH` and the policy `scripted` need no time for sampling, so the evaluator should always have work. The
share is the time during which evaluations run, summed over all evaluations, divided by the capacity and by the time
from the start of the first evaluation to the end of the last. `seconds_before` passed before the first one: for
`scripted`, the prompts of all episodes are composed first. Three evaluators: one that waits for 1 s (capacity 8
and 64), and `local` with the correct demonstrations of `starter` in Triton's interpreter, which evaluates on the same
CPU cores. The target is 90 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from provenance import provenance

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome, SampleId
from kernelrl_experiments.eval_jobs import EvalJob
from kernelrl_experiments.evaluate import evaluate_job
from kernelrl_experiments.existing_kernels import ExistingKernel, ExistingKernels

RESULT = Path(__file__).parent / "results" / "eval_occupancy.json"


class Waiter(Evaluator):
    """Waits for 1 s."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await asyncio.sleep(1)
        return Evaluation(Outcome.CORRECT)


class Watched(Evaluator):
    """Another evaluator, with the times of its evaluations."""

    def __init__(self, inner: Evaluator) -> None:
        self._inner, self.capacity = inner, inner.capacity
        self.spans: list[tuple[float, float]] = []
        self._made = time.monotonic()

    async def start(self) -> None:
        await self._inner.start()

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        begin = time.monotonic()
        try:
            return await self._inner.evaluate(request)
        finally:
            self.spans.append((begin, time.monotonic()))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def identity(self) -> str:
        return self._inner.identity()

    def facts(self) -> dict[str, Any]:
        wall = max(end for _, end in self.spans) - min(begin for begin, _ in self.spans)
        busy = sum(end - begin for begin, end in self.spans)
        share = busy / (self.capacity * wall)
        return {
            "capacity": self.capacity,
            "evaluations": len(self.spans),
            "seconds": round(wall, 2),
            "seconds_before": round(min(begin for begin, _ in self.spans) - self._made, 2),
            "share_of_capacity": round(share, 3),
        }


@contextmanager
def watched(replacement: Evaluator | None) -> Iterator[list[Watched]]:
    """Every evaluation service that is created meanwhile watches its evaluator, or uses another one."""
    found: list[Watched] = []
    original = EvaluationService.__init__

    def init(self: EvaluationService, evaluator: Evaluator, **options: Any) -> None:
        found.append(Watched(replacement or evaluator))
        original(self, found[-1], **{**options, "cache_dir": None})

    with patch.object(EvaluationService, "__init__", init):
        yield found


def kernels(count: int) -> ExistingKernels:
    """Correct demonstrations, each different from the others by a comment."""
    source = registry().make("tasks", load_recipe("smoke", (), registry=registry()).recipe.tasks)
    tasks = list(source.tasks("train"))[:40]
    sources = []
    for task in tasks:
        shown = [one for one in source.demonstrations(task) if one.backend == "triton"]
        sources.append(next(one.source for one in shown if one.outcome is Outcome.CORRECT))
    made = [
        ExistingKernel(SampleId(0, index, sample, 0), f"{text}\n# {index} {sample}\n")
        for index, text in enumerate(sources)
        for sample in range(count // len(tasks))
    ]
    return ExistingKernels(tuple(tasks), tuple(made))


def measure(existing: ExistingKernels, scratch: Path, replacement: Evaluator | None, how: str) -> dict[str, Any]:
    """Evaluate the kernels by `--kernels`, or as replies of the policy `scripted`."""
    script = scratch / "replies.jsonl"
    lines = [json.dumps({"reply": f"```python\n{kernel.text}```"}) for kernel in existing.kernels]
    script.write_text("\n".join(lines))
    options = [
        f"policy={{use: scripted, path: {script}, choose: cycle}}",
        "eval.split=train",
        "sampling.max_tokens=100000",  # a token of the policy scripted is a byte
        f"eval.max_tasks={len(existing.tasks)}",
        f"eval.samples={len(existing.kernels) // len(existing.tasks)}",
    ]
    recipe = load_recipe("smoke", options, registry=registry()).recipe
    job = EvalJob(recipe, registry(), how, existing=existing if how == "kernels" else None)
    with watched(replacement) as services:
        asyncio.run(evaluate_job(job, scratch / f"{time.monotonic_ns()}.partial"))
    (service,) = services
    return {"replies": how, "evaluator": "waits 1 s" if replacement else "local", **service.facts()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=120)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"provenance": provenance("torch", "triton"), "measured": []}
    with tempfile.TemporaryDirectory() as scratch:
        for how in ("kernels", "scripted"):
            for capacity, count in ((8, 240), (64, 1920), (0, arguments.kernels)):
                evaluator = Waiter(capacity) if capacity else None
                found["measured"].append(measure(kernels(count), Path(scratch), evaluator, how))
                print(json.dumps(found["measured"][-1]), flush=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
