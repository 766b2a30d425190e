"""Cost of the judge's probes: evaluations without probes, with one at a time, and with all.

    python benchmarks/probe_overhead.py --output benchmarks/results/probe_overhead_cpu.json
    python benchmarks/probe_overhead.py --device cuda --settings none all --output FILE.json

On the CPU: correct demonstrations of a dozen starter tasks in Triton's interpreter, and the C++ examples, timed. On a
GPU: the CUDA and Triton examples, timed. Each candidate is evaluated under every setting, in random order, one
evaluation at a time; the first repetition fills the build cache and is excluded. Reported are mean seconds per
evaluation, without waiting and building, and the ratio to evaluations without probes. The target applies to timed
evaluations; that of untimed ones in the interpreter is a rate (`interpreted_checks.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from provenance import provenance

from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import Use
from kernelrl_core.types import EvaluationRequest, EvaluationSettings, Outcome, Severity
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.source import StarterTasks
from kernelrl_testing.values import make_request

PROBES = EvaluationSettings().probes
SETTINGS: dict[str, tuple[str, ...]] = {"none": (), **{probe: (probe,) for probe in PROBES}, "all": PROBES}
LARGEST_RATIO = 1.5
KERNELS = 12


def interpreted() -> list[tuple[str, str]]:
    source = StarterTasks(StarterOptions(practice=0))
    pairs = [
        (task.reference, answer.source)
        for task in source.tasks("train")
        for answer in source.demonstrations(task)
        if answer.outcome is Outcome.CORRECT and answer.backend == "triton"
    ]
    return pairs[:: len(pairs) // KERNELS]


def examples(backend: str) -> list[tuple[str, str]]:
    found = importlib.import_module(f"kernelrl_plugin_{backend}.examples")
    return [(example.reference, example.kernel) for example in (found.ONE_SHOT, *found.FEW_SHOT)]


def request(
    task: str, kernel: str, backend: str, options: dict[str, Any], settings: EvaluationSettings
) -> EvaluationRequest:
    return make_request(
        kernel,
        task,
        backend,
        backend_options=options,
        settings=settings,
        seed=f"{random.getrandbits(128):032x}",
        kernels=tuple(fact.name for fact in _backend(backend).source_facts(kernel).kernels),
    )


@functools.cache
def _backend(name: str) -> Any:
    config = registry().config_class("backends", name)
    return registry().make("backends", Use(name, config() if config is not None else None))


async def measure(
    pairs: list[tuple[str, str]], backend: str, options: dict[str, Any], timing: bool, *, rounds: int, names: list[str]
) -> dict[str, Any]:
    evaluator = LocalEvaluator(LocalConfig(workers=1))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    wrong: list[str] = []
    for number in range(rounds + 1):
        for task, kernel in pairs:
            for name in random.sample(names, len(names)):
                settings = EvaluationSettings(timing=timing, timing_trials=20, probes=SETTINGS[name])  # type: ignore[arg-type]
                asked = request(task, kernel, backend, options, settings)
                begin = time.monotonic()
                found = await evaluator.evaluate(asked)
                whole = time.monotonic() - begin
                suspect_rules = [finding.rule for finding in found.findings if finding.severity is not Severity.NOTE]
                if found.outcome is not Outcome.CORRECT or suspect_rules:
                    wrong.append(f"{name}: {found.outcome.value} {suspect_rules}")
                if number:
                    seconds[name].append(whole - found.seconds.get("build", 0.0) - found.seconds.get("wait", 0.0))
    await evaluator.aclose()
    means = {name: statistics.mean(values) for name, values in seconds.items()}
    return {
        "kernels": len(pairs),
        "evaluations_each": len(seconds["all"]),
        "timed": timing,
        "seconds": {name: round(value, 4) for name, value in means.items()},
        "ratio": {name: round(value / means["none"], 3) for name, value in means.items()},
        "not_clean": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    cases: dict[str, tuple[list[tuple[str, str]], str, dict[str, Any], bool]] = {
        "cpu": {
            "triton_interpreted": (interpreted(), "triton", {"mode": "interpreter"}, False),
            "cpp_timed": (examples("cpp"), "cpp", {}, True),
        },
        "cuda": {
            "cuda_timed": (examples("cuda"), "cuda", {}, True),
            "triton_timed": (examples("triton"), "triton", {}, True),
        },
    }[arguments.device]
    device = _gpu() if arguments.device == "cuda" else "cpu"
    origin = {"device": device, **provenance("torch", "triton")}
    if not {"none", "all"} <= set(arguments.settings):
        parser.error("--settings must include none and all, which are compared")
    results: dict[str, Any] = {}
    for name, case in cases.items():
        results[name] = asyncio.run(measure(*case, rounds=arguments.rounds, names=arguments.settings))
        reached = all(result["ratio"]["all"] <= LARGEST_RATIO for result in results.values() if result["timed"])
        document = {"provenance": origin, "largest_ratio": LARGEST_RATIO, "reached": reached, "results": results}
        text = json.dumps(document, indent=1)
        if arguments.output:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(text + "\n")
    print(text)


def _gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
