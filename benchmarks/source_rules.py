"""Time that the checker `source_rules` takes for a kernel, from 50 to 1,000 lines.

    python benchmarks/source_rules.py > benchmarks/results/source_rules.json

Sources consist of the examples of the backends `cuda` and `triton`, repeated under other names. Times are CPU times of
the checker alone. The time of the backend's analysis, which every candidate needs, is reported beside them.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable

from provenance import provenance

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.types import Candidate, SourceFacts, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.examples import FEW_SHOT as CUDA
from kernelrl_plugin_triton.examples import FEW_SHOT as TRITON
from kernelrl_plugin_triton.kernels import find_kernels

RUNS = 50
LINES = (50, 300, 1000)
TARGET_MS = 20.0


def main() -> None:
    begun, results = provenance("kernelrl-plugin-checkers"), {}
    for language, example, facts in (
        ("cuda", CUDA[0].kernel, lambda source: extension_facts(source, "cuda")),
        ("triton", TRITON[0].kernel, lambda source: SourceFacts(kernels=find_kernels(source))),
    ):
        for lines in LINES:
            results[f"{language}_{lines}_lines"] = _measure(_repeated(example, lines), language, facts)
    largest = max(result["p95_ms"] for name, result in results.items() if name.endswith("_300_lines"))
    print(
        json.dumps(
            {
                "benchmark": "source_rules",
                "results": results,
                "target_ms": TARGET_MS,
                "reached": largest <= TARGET_MS,
                "runs": RUNS,
                "provenance": begun,
            },
            indent=1,
        )
    )


def _repeated(example: str, lines: int) -> str:
    """The example's definitions, repeated under other names up to about `lines` lines."""
    head, separator, rest = example.partition("\nclass ModelNew")
    source, number = "", 0
    while source.count("\n") + rest.count("\n") < lines:
        renamed = re.sub(r"\b(\w*_kernel|\w+_source|extension|block_\w+)\b", rf"\g<1>_{number}", head)
        source += f"{renamed if number else head}\n"
        number += 1
    return source + separator + rest


def _measure(source: str, language: str, read: Callable[[str], SourceFacts]) -> dict[str, float]:
    checker = SourceRules(SourceRulesConfig())
    task = Task("benchmark", "")
    checks, readings = [], []
    for _ in range(RUNS + 1):
        began = time.process_time()
        facts = read(source)
        readings.append(time.process_time() - began)
        candidate = Candidate(source, language, facts=facts)
        began = time.process_time()
        checker.check(candidate, task, None)
        checks.append(time.process_time() - began)
    # The first repetition fills the caches and is excluded.
    return {
        "lines": source.count("\n"),
        "characters": len(source),
        "median_ms": round(statistics.median(checks[1:]) * 1e3, 2),
        "p95_ms": round(statistics.quantiles(checks[1:], n=20)[-1] * 1e3, 2),
        "backend_facts_median_ms": round(statistics.median(readings[1:]) * 1e3, 2),
    }


if __name__ == "__main__":
    main()
