"""Measurements of evaluators: throughput, timing, correctness, hacks, clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from docpages.measurements.declaration import Measurement, each, figures, only, rows


def probes(data: Sequence[Any]) -> dict[str, Any]:
    return {name.replace("_", ", "): found for one in data for name, found in one["results"].items()}


def parity(data: Sequence[Any]) -> list[Any]:
    found = Counter((row["kernelbench"]["outcome"], row["ours"]["outcome"]) for row in data[0]["rows"].values())
    return [(*outcomes, count) for outcomes, count in found.most_common()]


def endings(data: Sequence[Any]) -> list[Any]:
    """Class of the lab's kernels, their number, and the number of those that ended as declared."""
    kernels = Counter(row["class"] for row in data[0]["rows"])
    expected = Counter(row["class"] for row in data[0]["rows"] if row["ending"] in row["expected"])
    return [(name, kernels[name], expected[name]) for name in sorted(kernels)]


def mutants(documents: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Counts of edits by dtype."""
    found: dict[str, dict[str, int]] = {}
    for row in documents[0]["rows"]:
        if row["edit"] is not None:
            counts = found.setdefault(row["dtype"], {"edits": 0, "wrong": 0})
            counts["edits"] += 1
            counts["wrong"] += bool(row["wrong_on"])
    return found


def judged_mutants(documents: Sequence[Any]) -> dict[str, Counter[str]]:
    """Counts of mutants and right kernels by dtype: of those that were evaluated, and of those caught or clean."""
    found: dict[str, Counter[str]] = {}
    for row in documents[0]["rows"].values():
        is_clean = (row["outcome"], row["verdict"]) == ("correct", "clean")
        counts = found.setdefault(row["dtype"], Counter())
        if row["edit"] is None:
            counts.update(right=1, clean=int(is_clean))
        else:
            counts.update(mutants=1, caught=int(not is_clean))
            counts.update(before=int("caught_before" in row), caught_before=int(row.get("caught_before", False)))
    return found


def lanes_in_steps(data: Sequence[Any]) -> list[Any]:
    """Parts whose times can be compared with those of one GPU."""
    return [part for part in data[0]["parts"] if part.get("times_compared")]


def alone(data: Sequence[Any]) -> list[Any]:
    """Parts that evaluated some candidates one at a time."""
    return [part for part in data[0]["parts"] if "steps_alone" in part]


def compilation_alone_s(part: Any) -> float:
    """Mean seconds of a candidate's compilation, in a build or in its runner."""
    steps = part["steps_alone"]
    build_s: float = steps["build, with its queue"]["mean_s"]
    return build_s or float(steps["compilation in the runner"]["mean_s"])


def timed(data: Sequence[Any], *, loaded: bool) -> list[Any]:
    """Rows of an idle machine, or of one with other work."""
    return [row for name, row in data[0]["rows"].items() if name.endswith(", loaded") is loaded]


EVALUATION = (
    Measurement(
        "Evaluations in Triton's interpreter",
        ("interpreted_checks.json",),
        "interpreted_checks",
        "Kernels per second that evaluator `local` evaluates on a CPU, with checks, and growth of its memory.",
        (
            figures(
                ("evaluations", "count"),
                ("judges", "workers"),
                ("evaluations per second", "per_second"),
                ("core-seconds per evaluation", "core_seconds_each"),
                ("median duration", "seconds_p50", "s"),
                ("95th percentile", "seconds_p95", "s"),
                ("memory of the process tree, middle", "tree|middle|pss_mib", "MiB"),
                ("memory of the process tree, end", "tree|end|pss_mib", "MiB"),
            ),
        ),
    ),
    Measurement(
        "Several GPUs",
        ("evaluator_scaling.json",),
        "evaluator_scaling",
        "Candidates per minute with cold caches on the GPUs of one machine, and contexts that its driver creates.",
        (
            rows(
                "parts",
                ("source tree", "tree"),
                ("backend", "backend"),
                ("GPU", "gpu"),
                ("GPUs", "gpus"),
                ("cores", "cores"),
                ("lanes per GPU", "lanes_per_gpu"),
                ("kernels", "kernels"),
                ("per minute", "per_minute"),
                ("per minute, without the first and last tenth", "per_minute_middle"),
            ),
            rows(
                lanes_in_steps,
                ("backend", "backend"),
                ("GPUs", "gpus"),
                ("lanes", "lanes"),
                ("start a runner: wait for a turn", "steps|start of the runner: wait for a turn|at_a_time"),
                ("create its context", "steps|start of the runner: context|at_a_time"),
                ("compile", "steps|compilation in the runner|at_a_time"),
                ("hold a GPU, shared", "steps|lease, shared|at_a_time"),
                ("wait to be alone on it", "steps|wait for a lease, exclusive|at_a_time"),
                ("hold it alone", "steps|lease, exclusive|at_a_time"),
                ("times within 3 % of one GPU", lambda row: row["times_within_3_percent"] / row["times_compared"], "%"),
            ),
            rows(
                alone,
                ("backend", "backend"),
                ("one candidate on an idle machine", "alone_mean_s", "s"),
                ("of which compilation", compilation_alone_s, "s"),
            ),
            rows(
                "contexts",
                ("GPUs", "gpus"),
                ("processes per GPU", "each"),
                ("queues", "queues"),
                ("contexts per second", "per_second"),
            ),
        ),
        "The second table has the lanes in each step, on average. "
        "[Several machines](../scaling.md#how-many-machines) draws the conclusions.",
    ),
    Measurement(
        "Cost of the probes",
        ("probe_overhead_cpu.json", "probe_overhead_cuda.json"),
        "probe_overhead",
        "Mean duration of an evaluation with all probes and without any, without waiting and building.",
        (
            rows(
                probes,
                ("kernels", "@"),
                ("without probes", "seconds|none", "s"),
                ("with all", "seconds|all", "s"),
                ("ratio", "ratio|all", "x"),
            ),
        ),
        "[Correctness](../correctness.md) describes the probes.",
    ),
    Measurement(
        "Hostile kernels",
        ("hostile_evaluations_cpu.json", "hostile_evaluations_cuda.json", "hostile_evaluations_two_gpus.json"),
        "hostile_evaluations",
        "Evaluations of which one tenth are hostile: wrong outcomes, leftovers, and throughput of the honest ones.",
        (
            rows(
                each("CPU", "GPU", "two GPUs"),
                ("device", "@"),
                ("evaluations", "summary|evaluations"),
                ("hostile", "summary|hostile"),
                ("wrong outcomes", "summary|wrong_verdicts"),
                ("processes left", "summary|left_after_closing|processes"),
                ("files left", "summary|left_after_closing|files"),
                ("throughput kept beside them", "summary|throughput_kept", "%"),
            ),
        ),
        "[Threat model](../security.md#the-sandbox) describes the sandbox.",
    ),
    Measurement(
        "Builds of inline extensions",
        ("inline_corpus.json",),
        "inline_corpus",
        "Extensions built by the build service and by torch's `load_inline`: equal outputs, and the cost of both.",
        (
            figures(
                ("extensions", "of"),
                ("equal outputs", "equal"),
                (
                    "median build, build service",
                    lambda data: median(row["ours_s"] for row in data["rows"].values() if row.get("ours_s")),
                    "s",
                ),
                (
                    "median build, `load_inline`",
                    lambda data: median(row["ordinary_s"] for row in data["rows"].values() if row.get("ordinary_s")),
                    "s",
                ),
                ("precompiled headers, once", "prepared_once_s", "s"),
            ),
        ),
        "[Building](../building.md) describes the build service.",
    ),
    Measurement(
        "Mutants of right kernels",
        ("mutant_differences.json",),
        "mutant_differences",
        "Edits of right kernels, and how many of them a comparison with double precision finds wrong, by dtype.",
        (rows(mutants, ("dtype", "@"), ("edits", "edits"), ("wrong", "wrong")),),
        "`benchmarks/mutants.py` evaluates those that are wrong.",
    ),
    Measurement(
        "Judged mutants",
        ("mutants.json",),
        "mutants",
        "Wrong edits of right kernels that the evaluator catches on the CPU, and right kernels that it finds clean.",
        (
            rows(
                judged_mutants,
                ("dtype", "@"),
                ("mutants", "mutants"),
                ("caught", "caught"),
                ("also evaluated at 867b1369", "before"),
                ("caught there", "caught_before"),
                ("right kernels", "right"),
                ("clean", "clean"),
            ),
        ),
        "Every mutant that revision 867b1369 caught is caught. C++ kernels were not evaluated there.",
    ),
)

TIMING = (
    Measurement(
        "Repeatability of times",
        ("timing_repeatability.json",),
        "timing_repeatability",
        "Spread of run time and speedup over several evaluations of a kernel on an idle GPU, beside CUDA events.",
        (
            rows(
                lambda data: timed(data, loaded=False),
                ("kernel", "kernel"),
                ("evaluations", "checks"),
                ("run time", "runtime_us", "µs"),
                ("interquartile range", "interquartile_share", "%"),
                ("speedup", "speedup", "x"),
                ("interquartile range", "speedup_interquartile_share", "%"),
                ("speedup by CUDA events", "speedup_by_events", "x"),
            ),
        ),
        "[Timing](../timing.md) describes the method.",
    ),
    Measurement(
        "Repeatability beside other work",
        ("timing_repeatability.json",),
        "timing_repeatability",
        "The same run times beside processes that keep every CPU core busy, with many evaluations at once.",
        (
            rows(
                lambda data: timed(data, loaded=True),
                ("kernel", "kernel"),
                ("evaluations", "checks"),
                ("run time", "runtime_us", "µs"),
                ("interquartile range", "interquartile_share", "%"),
                ("within 5 % of the median", "within_5_percent", "%"),
            ),
            figures(("busy processes", "load|busy_processes"), ("evaluations at once", "load|lanes")),
        ),
    ),
    Measurement(
        "References of KernelBench",
        ("kernelbench_references.json",),
        "kernelbench_references",
        "KernelBench's references as candidates on the default lanes: those that record, and their outcomes.",
        (
            figures(
                ("references", "evaluated"),
                ("recorded", "recorded"),
                ("`correct`", "outcomes|correct"),
                ("`incorrect`", "outcomes|incorrect"),
                ("`out_of_memory`", lambda data: data["outcomes"].get("out_of_memory", 0)),
            ),
        ),
        "[Timing](../timing.md#recorded-and-not-recorded) names the reasons.",
    ),
)

CORRECTNESS = (
    Measurement(
        "Outcomes beside KernelBench",
        ("kernelbench_parity.json",),
        "kernelbench_parity",
        "Kernels by their outcome in KernelBench's `eval_kernel_against_ref` and here with `profile: kernelbench`.",
        (rows(parity, ("KernelBench", "0"), ("kernelrl", "1"), ("kernels", "2")),),
        "`raises`: its function ends with an exception. The program gives every difference a named reason.",
    ),
    Measurement(
        "Analysis of KernelBench",
        ("kernelbench_analysis.json",),
        "kernelbench_analysis",
        "Figures of KernelBench's own analysis script on exported results, compared with those of kernelrl.",
        (
            figures(
                ("simulated evaluations", "simulated|evaluations"),
                ("figures of each", "simulated|figures_each"),
                ("differences", lambda data: len(data["simulated"]["differences"])),
                ("differences in a measured evaluation", lambda data: len(data["measured"]["differences"])),
            ),
        ),
    ),
    Measurement(
        "Five hacks in two evaluators",
        ("five_hacks.json",),
        "five_hacks",
        "Five kernels that exploit an evaluator in their own process, in KernelBench's evaluator and here.",
        (
            rows(
                "rows",
                ("kernel", "@"),
                ("KernelBench: correct", "kernelbench|correct"),
                ("KernelBench: speedup", "kernelbench|speedup", "x"),
                ("outcome here", "ours|outcome"),
                ("speedup here", "ours|speedup", "x"),
            ),
        ),
        "[Reward hacks](../hacks.md) explains each.",
    ),
    Measurement(
        "Lab on a GPU",
        ("lab_gpu.json",),
        "kernelrl lab --gpu",
        "Hacks and honest kernels of the lab on a GPU: those that ended as the lab declares.",
        (rows(endings, ("class", "0"), ("kernels", "1"), ("as declared", "2")),),
        "[Reward hacks](../hacks.md) describes the lab.",
    ),
    Measurement(
        "Public kernels",
        ("public_kernels.json",),
        "kernelrl lab --gpu --suite DIR",
        "Kernels that others published, as tasks and kernels: those that end correct and clean, and why others do not.",
        (
            rows(
                "tables",
                ("set", "half"),
                ("backend", "backend"),
                ("kernels", "judged"),
                ("of which not float32", "low_precision"),
                ("correct and clean", "clean"),
                ("not right, or no own kernel", "not_right"),
                ("others", "refused"),
            ),
            rows(
                "causes",
                ("why not correct and clean", "cause"),
                ("first half", "first"),
                ("second half, seen before", "seen"),
                ("second half", "second"),
                ("third set", "third"),
                ("corrected since", "changed_since"),
            ),
        ),
        "The corrections of the second half are in the last two sets. "
        "[Correctness](../correctness.md) describes the comparison.",
    ),
    Measurement(
        "KernelBench's evaluator on the lab",
        ("kernelbench_lab.json",),
        "kernelbench_evaluator",
        "Hacks and honest kernels of the lab that KernelBench's evaluator rewards: honest ones should be, hacks not.",
        (
            rows(
                "classes",
                ("class", "@"),
                ("kernels", "kernels"),
                ("rewarded", "rewarded"),
                ("without a result", "no_result"),
            ),
        ),
        "[Other frameworks](../frameworks.md#measuring-any-evaluator) describes the protocol.",
    ),
    Measurement(
        "Checker source_rules",
        ("source_rules.json",),
        "source_rules",
        "CPU time of the checker that reads every candidate before it is built.",
        (
            rows(
                "results",
                ("source", lambda one: f"{one['lines']} lines"),
                ("characters", "characters"),
                ("median", "median_ms", "ms"),
                ("95th percentile", "p95_ms", "ms"),
                ("analysis by the backend", "backend_facts_median_ms", "ms"),
            ),
            figures(("target for a kernel of 300 lines", "target_ms", "ms"), ("reached", "reached")),
        ),
        "The first three sources are CUDA, the others Triton.",
    ),
)

ELSEWHERE = (
    Measurement(
        "Evaluator ray",
        ("ray_evaluator.json",),
        "ray_evaluator",
        "Cost of Ray beyond evaluator `local`, use of the judges, and results while workers are killed.",
        (
            figures(
                ("median difference per evaluation", "overhead|median_ms", "ms"),
                ("median evaluation by `local`", "overhead|local_median_ms", "ms"),
                ("start", "overhead|start_s", "s"),
                ("share of time in which a judge has work, lowest", lambda data: min(data["busy"]["busy_share"]), "%"),
                ("workers killed", "killed|workers_killed"),
                ("requests", "killed|requests"),
                ("results, each once", "killed|results"),
                ("results equal to `local`", "killed|equal_to_local"),
            ),
        ),
        "[Several machines](../scaling.md#ray) describes the actors.",
    ),
    Measurement(
        "Evaluator modal: client",
        ("modal_client.json",),
        "modal_client",
        "Use of capacity by the client of evaluator `modal` against a stand-in for Modal on a virtual clock.",
        (
            rows(
                only("one step", "many", "many, with outages"),
                ("case", "@"),
                ("evaluations", "evaluations"),
                ("use of capacity", "use_of_capacity", "%"),
                ("per hour", "per_hour"),
                ("lost or doubled", lambda one: one["lost"] + one["doubled"]),
                ("client CPU time per evaluation", "client_cpu_ms_per_evaluation", "ms"),
            ),
        ),
        "No account was used ([not tested](../not_run.md)).",
    ),
    Measurement(
        "Evaluator modal: functions",
        ("modal_functions.json",),
        "modal_functions",
        "Outcomes, verdicts and findings of the app's functions, executed in one process, beside evaluator `local`.",
        (figures(("kernels", "kernels"), ("agreeing", "agreeing")),),
    ),
)
