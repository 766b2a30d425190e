"""Compare outcomes of this evaluator with those of KernelBench's `eval_kernel_against_ref`, on one GPU.

    python benchmarks/kernelbench_parity.py --kernelbench CLONE [--large] [--budget-s 240] [--output FILE.json]
    python benchmarks/kernelbench_parity.py --report [--output FILE.json]

Each selected task of levels 1 and 2, and each small task of `corpora/parity_kernels.py`, has correct and incorrect
kernels. Both evaluators evaluate each kernel with equally many correctness trials and without timing: KernelBench's in
one process per task, because it executes candidates in its own process, and with a time limit, because it has none;
ours with `profile="kernelbench"`. A call evaluates tasks until its budget is spent. The next call continues with the
tasks that are missing for this machine, torch and commit. The report gives every difference a named reason; a
difference without one makes the exit status 1. Needs an NVIDIA GPU, and nvcc for the CUDA kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpora.kernelbench_stand_ins import STAND_INS
from corpora.parity_kernels import own_tasks
from corpora.parity_variants import ParityTask, published_tasks
from provenance import machine
from rows import Row, Rows

RESULT = Path(__file__).parent / "results" / "kernelbench_parity.json"
_MARK = "PARITY "

_THEIRS = (
    STAND_INS
    + """
sys.path.insert(0, sys.argv[1])
import torch
from kernelbench.eval import eval_kernel_against_ref
order = json.load(open(sys.argv[2]))
for kind, (source, backend) in order["kernels"].items():
    row = {"kind": kind}
    try:
        found = eval_kernel_against_ref(
            order["task"], source, num_correct_trials=order["trials"], measure_performance=False,
            build_dir=sys.argv[3], device=torch.device("cuda:0"), backend=backend)
        if found is None:
            row["outcome"] = "asks_for_a_retry"
        else:
            said = {key: str(value)[:300] for key, value in found.metadata.items()}
            left = ("hardware", "device")
            row["metadata"] = {key: value for key, value in said.items() if key not in left and "traceback" not in key}
            row["outcome"] = ("correct" if found.correctness else "compile_error" if not found.compiled
                              else "runtime_error" if "runtime_error" in said else "incorrect")
    except BaseException as error:
        row["outcome"] = "raises"
        row["metadata"] = {"error": f"{type(error).__name__}: {error}"[:300]}
    print("\\n" + sys.argv[4] + json.dumps(row), flush=True)
    torch.cuda.empty_cache()
"""
)


# --- both sides -----------------------------------------------------------------------------------------------------


async def theirs(task: ParityTask, clone: Path, trials: int, limit_s: float) -> dict[str, dict[str, Any]]:
    """Outcome and metadata, by kind of kernel."""
    with tempfile.TemporaryDirectory() as scratch:
        order = Path(scratch, "order.json")
        order.write_text(json.dumps({"task": task.source, "kernels": task.kernels, "trials": trials}))
        command = [sys.executable, "-c", _THEIRS, str(clone / "src"), str(order), f"{scratch}/build", _MARK]
        log = Path(scratch, "log")
        sink = await asyncio.to_thread(log.open, "wb")
        try:
            process = await asyncio.create_subprocess_exec(*command, stdout=sink, stderr=sink)
            await asyncio.wait_for(process.wait(), limit_s)
            ended = "ended"
        except TimeoutError:
            process.kill()
            await process.wait()
            ended = "timeout"
        finally:
            sink.close()
        text = log.read_text(errors="replace")
    lines = [json.loads(line.removeprefix(_MARK)) for line in text.splitlines() if line.startswith(_MARK)]
    found = {row.pop("kind"): row for row in lines}
    lost = {"outcome": ended, "metadata": {"log": text[-300:]}}
    return {kind: found.get(kind, lost) for kind in task.kernels}


async def ours(task: ParityTask, service: Any, trials: int) -> dict[str, dict[str, Any]]:
    """Outcome and message, by kind of kernel."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.types import EvaluationSettings
    from kernelrl_testing.values import make_request

    settings = EvaluationSettings(
        profile="kernelbench", trials=trials, timeout_s=180, build_timeout_s=240, memory_mib=32768
    )

    async def judge(kind: str) -> dict[str, Any]:
        source, backend = task.kernels[kind]
        request = make_request(source, task.source, backend, task_id=task.name, settings=settings, seed="5" * 32)
        try:
            found = await service.evaluate(request)
        except KernelRLError as error:
            return {"outcome": "raises", "message": f"{type(error).__name__}: {error}"[:300]}
        mismatch = found.mismatch
        return {
            "outcome": found.outcome.value,
            "message": (found.message or found.detail)[:300],
            "mismatch": mismatch and {"kind": mismatch.kind, "max_abs": mismatch.max_abs},
            "tests_passed": found.tests_passed,
        }

    return dict(zip(task.kernels, await asyncio.gather(*map(judge, task.kernels)), strict=True))


# --- a slice --------------------------------------------------------------------------------------------------------


async def run_slice(given: argparse.Namespace, rows: Rows) -> None:
    from kernelrl_core.environment.evaluation_service import EvaluationService
    from kernelrl_core.recipe.schema import PositiveInt
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator

    done = {name for name, row in rows.rows.items() if row["ours"]["outcome"] != "infra_error"}
    tasks = [*own_tasks(), *published_tasks(given.kernelbench, large=given.large)]
    waiting = [task for task in tasks if any(f"{task.name} {kind}" not in done for kind in task.kernels)]
    service = EvaluationService(LocalEvaluator(LocalConfig(gpu_workers=PositiveInt(given.processes))), cache_dir=None)
    slots = asyncio.Semaphore(given.processes)

    async def judge(task: ParityTask) -> None:
        async with slots:
            if rows.left_s < 0:
                return
            their, our = await asyncio.gather(
                theirs(task, given.kernelbench, given.trials, given.task_limit_s), ours(task, service, given.trials)
            )
            for kind in task.kernels:
                row = {"task": task.name, "stratum": task.stratum, "kind": kind, "trials": given.trials}
                rows.add(f"{task.name} {kind}", {**row, "kernelbench": their[kind], "ours": our[kind]})

    try:
        await asyncio.gather(*map(judge, waiting))
    finally:
        await service.aclose()


def origin(clone: Path) -> Row:
    import torch

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0].strip()
    gpu = torch.cuda.get_device_name()
    return {**machine("torch", "triton"), "gpu": gpu, "driver": driver, "kernelbench": clone.name}


# --- the report -----------------------------------------------------------------------------------------------------


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row["kernelbench"].get("metadata", {}))


def _pair(row: dict[str, Any]) -> tuple[str, str]:
    return row["kernelbench"]["outcome"], row["ours"]["outcome"]


def _matches(pattern: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: _pair(row)[0] == "runtime_error" and re.search(pattern, _text(row)) is not None


def _near_the_tolerance(row: dict[str, Any]) -> bool:
    """Both sides evaluate the same kind of error on different inputs, and one of them is within the tolerance."""
    return row["kind"] in ("off_1e-3", "off_1_percent", "zeros") and set(_pair(row)) == {"correct", "incorrect"}


REASONS: tuple[tuple[str, str, Callable[[dict[str, Any]], bool]], ...] = (
    (
        "outputs_without_shape",
        "KernelBench reads `.shape` of every output: a tuple, of the reference or the kernel, is a runtime error.",
        _matches(r"object has no attribute 'shape'"),
    ),
    (
        "integer_inputs_become_floats",
        "KernelBench casts integer inputs to the precision: the reference, or the kernel, cannot use them then.",
        _matches(r"expected (?:scalar type|target dtype).*Long|not implemented for 'Float'|tensors used as indices"),
    ),
    (
        "dtypes_do_not_compare",
        "KernelBench does not compare dtypes; `allclose` raises for different ones, recorded as a runtime error.",
        _matches(r"(?:Float|Half|Long|Bool) did not match (?:Float|Half|Long|Bool)"),
    ),
    (
        "devices_do_not_compare",
        "KernelBench does not compare devices; `allclose` raises for different ones, recorded as a runtime error.",
        _matches(r"same device|at least two devices"),
    ),
    (
        "mean_of_an_integer_difference",
        "KernelBench computes the mean difference of wrong outputs, which raises for integers.",
        _matches(r"mean\(\): could not infer output dtype"),
    ),
    (
        "not_a_number_equals_nothing",
        "The reference's output contains NaN, which KernelBench compares as unequal to itself.",
        lambda row: _pair(row) == ("incorrect", "correct") and "nan" in _text(row),
    ),
    (
        "constructor_errors_escape",
        "KernelBench catches only RuntimeError around the constructor; any other error leaves its evaluator.",
        lambda row: _pair(row) == ("raises", "runtime_error") and row["kind"].endswith("_in_init"),
    ),
    (
        "compiled_at_the_first_call",
        "For KernelBench, a compile error at the first call is a runtime error.",
        lambda row: _pair(row) == ("runtime_error", "compile_error") and row["kind"].startswith("triton"),
    ),
    (
        "random_outputs",
        "The task draws random numbers in forward: two calls agree only by chance.",
        lambda row: row["stratum"] == "random" or row["task"] in ("kernelbench/2/66", "kernelbench/2/83"),
    ),
    (
        "near_the_tolerance",
        "The two evaluators draw different inputs, and the planted error is about as large as the tolerance.",
        _near_the_tolerance,
    ),
)
"""Name, sentence and condition of each reason. The first one that applies to a row explains it."""


def reason(row: dict[str, Any]) -> str:
    """`equal`, the name of the reason for a difference, or `UNEXPLAINED`."""
    their, our = _pair(row)
    if their == our:
        return "equal"
    return next((name for name, _, explains in REASONS if explains(row)), "UNEXPLAINED")


def report(document: Row) -> tuple[str, int]:
    """The tables in Markdown, and the number of unexplained differences."""
    judged = [(row, reason(row)) for row in document["rows"].values()]
    if not judged:
        return "No rows yet.", 0
    by_stratum: dict[str, Counter[str]] = defaultdict(Counter)
    for row, name in judged:
        by_stratum[row["stratum"]][name if name in ("equal", "UNEXPLAINED") else "explained"] += 1
    tasks: dict[str, set[str]] = defaultdict(set)
    for row, _ in judged:
        tasks[row["stratum"]].add(row["task"])
    published = {row["task"] for row, _ in judged if row["task"].startswith("kernelbench/")}
    agree = sum((_pair(row)[0] == "correct") == (_pair(row)[1] == "correct") for row, _ in judged)
    lines = [
        json.dumps({"date": document["date"], **document["provenance"]}),
        f"{len(judged)} kernels of {len({row['task'] for row, _ in judged})} tasks, {len(published)} of them "
        f"KernelBench's; {sum(name == 'equal' for _, name in judged)} outcomes equal, {agree} agree on correctness.",
        "",
        "| class | tasks | kernels | equal | explained | unexplained |",
        "|---|---|---|---|---|---|",
    ]
    for stratum, counts in sorted(by_stratum.items()):
        numbers = (len(tasks[stratum]), counts.total(), counts["equal"], counts["explained"], counts["UNEXPLAINED"])
        lines.append(f"| {stratum} | {' | '.join(map(str, numbers))} |")
    lines += ["", "| outcome at KernelBench | ours | kernels | reason |", "|---|---|---|---|"]
    pairs = Counter((*_pair(row), name) for row, name in judged)
    lines += [f"| {their} | {our} | {count} | {name} |" for (their, our, name), count in sorted(pairs.items())]
    lines += ["", "| task | kernel | KernelBench | ours | reason |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['task']} | {row['kind']} | {' | '.join(_pair(row))} | {name} |"
        for row, name in sorted(judged, key=lambda pair: (pair[0]["task"], pair[0]["kind"]))
        if name != "equal"
    ]
    used = {name for _, name in judged}
    lines += ["", *(f"- `{name}`: {sentence}" for name, sentence, _ in REASONS if name in used)]
    for row, name in judged:
        if name == "UNEXPLAINED":
            lines.append(f"- {row['task']} {row['kind']}: {_text(row)} against {json.dumps(row['ours'])}")
    return "\n".join(lines), sum(name == "UNEXPLAINED" for _, name in judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, help="a local clone of KernelBench")
    parser.add_argument("--output", type=Path, default=RESULT, help="rows so far; new rows are added")
    parser.add_argument("--budget-s", type=float, default=240, help="seconds after which no task is started")
    parser.add_argument("--task-limit-s", type=float, default=240, help="seconds that KernelBench may take for a task")
    parser.add_argument("--trials", type=int, default=2, help="correctness trials")
    parser.add_argument("--processes", type=int, default=6, help="tasks evaluated concurrently")
    parser.add_argument("--large", action="store_true", help="also tasks with inputs of 2 to 9 GB")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    given = parser.parse_args()
    if not given.report:
        if given.kernelbench is None:
            parser.error("--kernelbench CLONE is required unless --report is given")
        with Rows(given.output, origin(given.kernelbench), budget_s=given.budget_s) as rows:
            asyncio.run(run_slice(given, rows))
    text, unexplained = report(json.loads(given.output.read_text()))
    print(text)
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
