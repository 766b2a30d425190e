"""Measurements of the core: flow, resume, held-out evaluation, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docpages.measurements.declaration import Measurement, each, figures, only, rows


def coverage(data: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for row in data[0]["results"]:
        found.setdefault(f"{row['result']}, {row['tasks']} tasks", []).append(row)
    return found


_FAKE, _REAL = "evaluator of the test kit", "evaluator local"
_MEMORY = "server memory in the second half, MiB"

CORE = (
    Measurement(
        "Start of the command line",
        ("startup.json",),
        "startup",
        "Time until a command has ended, beside the import of the libraries that it needs.",
        (
            figures(
                ("import of the command line's libraries", "median_ms|baseline", "ms"),
                ("`kernelrl --help`", "median_ms|help", "ms"),
                ("`kernelrl plugins list`", "median_ms|plugins_list", "ms"),
                ("import of torch and Triton", "median_ms|torch_baseline", "ms"),
                ("`kernelrl check`, one kernel in Triton's interpreter", "median_ms|check", "ms"),
            ),
        ),
    ),
    Measurement(
        "Cost of the core per sample",
        ("core_overhead.json",),
        "core_overhead",
        "CPU time and memory of everything between a reply and the journal, with stand-ins for policy and evaluator.",
        (
            rows(
                "runs",
                ("reply tokens", "reply_tokens"),
                ("samples", "samples"),
                ("CPU time per sample", "cpu_ms_per_sample", "ms"),
                ("growth of memory after step 2", "memory_growth_mib", "MiB"),
                ("journal", "journal_mib", "MiB"),
            ),
            figures(
                ("target, CPU time per sample", "targets|cpu_ms_per_sample", "ms"),
                ("target, growth of memory", "targets|memory_growth_mib", "MiB"),
            ),
        ),
    ),
    Measurement(
        "Evaluation service",
        ("evaluation_service.json",),
        "evaluation_service",
        "Overhead of the service around every evaluator: concurrent waits, a straggler, a cancelled waiter.",
        (
            figures(
                (
                    "256 evaluations of one second at capacity 256",
                    "256 one-second evaluations at capacity 256, seconds",
                    "s",
                ),
                (
                    "255 evaluations of one second beside one of 30 s",
                    "255 one-second evaluations beside a straggler of 30 s, seconds",
                    "s",
                ),
                (
                    "waiters of 32 that got the evaluation after the first was cancelled",
                    "waiters of 32 with an evaluation after the first was cancelled",
                ),
            ),
        ),
    ),
    Measurement(
        "Evaluations over HTTP",
        ("service.json",),
        "service",
        "Latency of `kernelrl serve` beyond its evaluator, which takes 20 ms: 50 requests a second from 64 clients.",
        (
            figures(
                ("overhead, median", "overhead, ms|median", "ms"),
                ("overhead, 99 %", "overhead, ms|p99", "ms"),
                ("stored results per second", "stored results per second"),
            ),
        ),
    ),
    Measurement(
        "Soak of the service",
        ("service_soak.json",),
        "service_soak",
        "64 clients of `kernelrl serve`, whose connections are cut and whose server is killed three times. None may be "
        "wrong, lost or doubled.",
        (
            figures(
                ("evaluations, evaluator of the test kit", f"{_FAKE}|evaluations"),
                ("connections cut", f"{_FAKE}|connections cut"),
                ("wrong", f"{_FAKE}|wrong"),
                ("lost", f"{_FAKE}|lost"),
                ("results that differ when repeated", f"{_FAKE}|results that differ when repeated"),
                ("memory of the server, at half", f"{_FAKE}|{_MEMORY}|first", "MiB"),
                ("memory of the server, at the end", f"{_FAKE}|{_MEMORY}|last", "MiB"),
                ("evaluations, evaluator `local`", f"{_REAL}|evaluations"),
                ("wrong, `local`", f"{_REAL}|wrong"),
                ("lost, `local`", f"{_REAL}|lost"),
                ("results that differ when repeated, `local`", f"{_REAL}|results that differ when repeated"),
            ),
        ),
    ),
    Measurement(
        "Failover of servers",
        ("service_failover.json",),
        "service_failover",
        "One of two servers of evaluator `http` no longer responds: the longest delay of a request, in time-outs.",
        (
            figures(
                ("its process is stopped (SIGSTOP)", "SIGSTOP|longest delay / time-out"),
                ("its connections stall", "proxy stalls|longest delay / time-out"),
                ("its connections are dropped", "proxy drops|longest delay / time-out"),
            ),
        ),
    ),
    Measurement(
        "Checks by a running service",
        ("warm_check.json",),
        "warm_check",
        "`kernelrl check` with a running service that does all of it, and by the command, which imports the plugins.",
        (
            figures(
                ("median, kernel that is not Python", "seconds|format_error by the service|median", "s"),
                ("median, kernel that fails at its import", "seconds|compile_error by the service|median", "s"),
                ("median, correct kernel in Triton's interpreter", "seconds|correct by the service|median", "s"),
                (
                    "fastest by the command, kernel that is not Python",
                    "seconds|format_error by the command|median",
                    "s",
                ),
                ("CPU time of the client", "seconds|compile_error by the service|CPU of the client", "s"),
                ("CPU time of the command", "seconds|compile_error by the command|CPU of the client", "s"),
            ),
        ),
    ),
    Measurement(
        "Duration of a step",
        ("pipelining.json",),
        "pipelining",
        "Duration of a step under random latencies, divided by that of a schedule that knows all latencies in advance.",
        (
            rows(
                only("persistent", "independent"),
                ("latencies", "@"),
                ("mean", "over_clairvoyant|kernelrl|mean", "x"),
                ("lowest", "over_clairvoyant|kernelrl|min", "x"),
                ("highest", "over_clairvoyant|kernelrl|max", "x"),
                ("without `sampling.concurrency`", "over_clairvoyant|kernelrl_without_limit|mean", "x"),
                ("batches of evaluations", "over_clairvoyant|batcher_of_the_seeds|mean", "x"),
                ("lower bound without foreknowledge", "no_schedule_without_foreknowledge_under|mean", "x"),
            ),
        ),
        "[Overlap](../pipelining.md) describes what runs concurrently.",
    ),
    Measurement(
        "Resume after kill -9",
        ("resume_scripted.json", "resume_tinker.json", "resume_torch.json"),
        "resume",
        "Runs killed at random moments and resumed, compared with the same run undisturbed.",
        (
            rows(
                each("scripted", "tinker", "torch"),
                ("policy", "@"),
                ("kills", "kills"),
                ("runs", "runs"),
                ("runs that differ", lambda one: len(one["differing_runs"])),
                ("journalled replies sampled again", "journalled_and_begun_again"),
                ("replies in progress lost per kill", "lost_per_kill"),
            ),
        ),
        "[Exactness](../runs.md#exactness) states the conditions.",
    ),
    Measurement(
        "Path of a sample",
        ("sample_path.json",),
        "sample_path",
        "Modules of the core that one sample passes from the start of its step to the update.",
        (figures(("modules", "n_modules"), ("entries into `training`", "n_entries_into_training")),),
    ),
)

HELD_OUT = (
    Measurement(
        "Coverage of intervals",
        ("interval_coverage.json",),
        "interval_coverage",
        "Share of the 95 % intervals of simulated held-out evaluations that contain the true value.",
        (
            rows(
                coverage,
                ("interval", "@"),
                ("lowest", lambda found: min(row["coverage"] for row in found), "%"),
                ("highest", lambda found: max(row["coverage"] for row in found), "%"),
            ),
        ),
        "Each row is 1,000 evaluations. [Held-out evaluation](../evaluation.md#intervals) defines the intervals.",
    ),
    Measurement(
        "Use of the evaluator by kernelrl eval",
        ("eval_occupancy.json",),
        "eval_occupancy",
        "Share of the evaluator's capacity that `kernelrl eval` uses when replies need no time.",
        (
            rows(
                "measured",
                ("replies from", "replies"),
                ("evaluator", "evaluator"),
                ("capacity", "capacity"),
                ("evaluations", "evaluations"),
                ("share of capacity", "share_of_capacity", "%"),
            ),
        ),
    ),
    Measurement(
        "Restart of kernelrl eval",
        ("eval_restart.json",),
        "eval_restart",
        "Turns that `kernelrl eval` repeats or loses when it is killed with `kill -9` and started again.",
        (
            rows(
                "results",
                ("evaluation", "@"),
                ("kills", "kills"),
                ("turns finished before the last kill", "finished_before_the_last_kill"),
                ("repeated", "repeated"),
                ("missing", "missing"),
                ("twice", "twice"),
            ),
        ),
    ),
)

TOOLS = (
    Measurement(
        "Loggers",
        ("loggers.json",),
        "loggers",
        "Time that a step of 1,000 samples waits for loggers, and CPU time that they take.",
        (
            rows(
                only("none", "tensorboard", "wandb", "trackio", "together"),
                ("logger", "@"),
                ("wait of the loop, median", "hold_ms|median", "ms"),
                ("highest", "hold_ms|max", "ms"),
                ("CPU time per step, median", "core_ms|median", "ms"),
                ("90th percentile", "core_ms|p90", "ms"),
            ),
        ),
        "[Loggers](../loggers.md#guarantees) lists the guarantees.",
    ),
    Measurement(
        "Reports",
        ("report.json",),
        "report",
        "Time, memory and size of `kernelrl report`, and the speed of its page in Chromium.",
        (
            rows(
                only("quickstart", "long"),
                ("run", "@"),
                ("journal", "journal_mb", "MB"),
                ("time", "report_s", "s"),
                ("memory", "report_memory_mb", "MB"),
                ("file", "report_mb", "MB"),
                ("first view", "report_in_chromium|first_view_ms", "ms"),
                ("an episode opens, median", "report_in_chromium|open_episode_ms|median", "ms"),
            ),
        ),
    ),
    Measurement(
        "Live view",
        ("watch.json",),
        "watch",
        "CPU time and memory of `kernelrl watch` beside an active run with 10,000 samples.",
        (
            figures(
                ("share of one CPU core", "cpu_share", "%"),
                ("memory", "memory_mib", "MiB"),
                ("CPU time of the start", "start_cpu_s", "s"),
            ),
        ),
    ),
)
