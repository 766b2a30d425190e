"""The functions of the Modal app, executed in this process, against evaluator `local`: outcome, verdict and findings of
the backends' examples and of the lab's honest kernels, kernel by kernel, under one seed.

    python benchmarks/modal_functions.py > benchmarks/results/modal_functions.json
    python benchmarks/modal_functions.py --device gpu > benchmarks/results/modal_functions_gpu.json

Messages are the JSON text that containers get; Modal's own client and service take no part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import modal
from provenance import provenance

from kernelrl_core.api.components import component_block, registry
from kernelrl_core.api.episodes import CandidateEvaluator, evaluate_kernel, read_evaluation_spec
from kernelrl_core.api.evaluators import Evaluator, Task, sha256_text
from kernelrl_lab.suite import read_hacks, suite_folder
from kernelrl_plugin_modal import container
from kernelrl_plugin_modal.app import add_functions
from kernelrl_plugin_modal.config import ModalConfig
from kernelrl_plugin_modal.evaluator import ModalEvaluator

SECRET = b"one key for both evaluators....."
SETTINGS = ("evaluation.timeout_s=60", "evaluation.timing_trials=10", "evaluation.trials=3")


class Local:
    """A function of the app whose calls are executed here."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.spawn = self

    async def aio(self, text: str) -> Any:
        task = asyncio.ensure_future(self.function.local(text))

        class Call:
            class get:
                @staticmethod
                async def aio() -> Any:
                    return await task

        return Call()


async def in_process() -> ModalEvaluator:
    functions = add_functions(modal.App("kernelrl-benchmark"), ModalConfig(), modal.Image.debian_slim())
    made = ModalEvaluator(ModalConfig(max_containers=1))
    made._gpu, made._cpu = map(Local, functions)
    made._facts = await made._calls.call(made._gpu, {"do": "describe"})
    return made


def kernels(device: str, backend: str) -> list[tuple[str, Task, str]]:
    example = registry().make("backends", component_block("backend", {"use": backend}, registry())).facts.example
    found = [("example", Task("example", example.reference), example.kernel)]
    suite, _ = read_hacks(suite_folder("honest"), registry=registry())
    return found + [
        (kernel.id, kernel.task, kernel.source)
        for kernel in suite
        if kernel.backend == backend and device in kernel.devices
    ]


async def judged(evaluator: Evaluator, backend: str, device: str, chosen: list[Any]) -> tuple[dict[str, Any], float]:
    mode = {"mode": "interpreter" if device == "cpu" else "gpu"} if backend == "triton" else {}
    checkers = {name: {"use": name} for name in ("source_rules", "evaluation_rules")}
    plain = {"backend": {"use": backend, **mode}, "evaluator": {"use": "local"}, "checkers": checkers}
    timing = f"evaluation.timing={'true' if device == 'gpu' else 'false'}"
    spec = read_evaluation_spec(plain, [*SETTINGS, timing], registry=registry())
    judge = CandidateEvaluator.from_spec(spec, registry=registry(), secret=SECRET, cache_dir=None, evaluator=evaluator)
    found: dict[str, Any] = {}
    begin = time.monotonic()
    for id_, task, source in chosen:
        turn = await evaluate_kernel(judge, task, source)
        rules = sorted(f"{finding.rule}:{finding.severity.value}" for finding in turn.findings)
        found[id_] = {"outcome": turn.outcome.value, "verdict": turn.verdict.value, "findings": rules}
        if turn.speedup is not None:
            found[id_]["speedup"] = round(turn.speedup, 3)
    return found, (time.monotonic() - begin) / len(chosen)


async def compare(device: str, backends: list[str], most: int | None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    seconds: dict[str, Any] = {}
    for backend in backends:
        chosen = kernels(device, backend)[:most]
        # Idle judges of one must not disturb the other.
        local = registry().make("evaluators", component_block("evaluator", {"use": "local", "workers": 1}, registry()))
        here, here_s = await judged(local, backend, device, chosen)
        await local.aclose()
        there, there_s = await judged(await in_process(), backend, device, chosen)
        await container.close()
        seconds[backend] = {"local": round(here_s, 3), "app": round(there_s, 3)}
        for id_, _, source in chosen:
            one, other = dict(here[id_]), dict(there[id_])
            speedups = {"local": one.pop("speedup", None), "app": other.pop("speedup", None)}
            rows.append(
                {
                    "kernel": id_,
                    "backend": backend,
                    "sha256": sha256_text(source)[:16],
                    "agrees": one == other,
                    **one,
                    **({} if one == other else {"app": other}),
                    **({"speedup": speedups} if device == "gpu" else {}),
                }
            )
            print(f"{backend} {id_}: {'agrees' if one == other else f'{one} {other}'}", file=sys.stderr)
    agreeing = sum(row["agrees"] for row in rows)
    return {"kernels": len(rows), "agreeing": agreeing, "seconds_per_kernel": seconds, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--most", type=int, help="Maximum number of kernels per backend.")
    arguments = parser.parse_args()
    backends = ["triton", "cpp"] if arguments.device == "cpu" else ["triton", "cuda"]
    facts = provenance("modal", "torch", "triton")
    found = asyncio.run(compare(arguments.device, backends, arguments.most))
    print(json.dumps({"provenance": facts, "device": arguments.device, **found}, indent=1))


if __name__ == "__main__":
    main()
