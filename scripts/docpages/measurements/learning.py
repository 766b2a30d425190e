"""Measurements of retrieval and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docpages.measurements.declaration import Measurement, figures, rows


def seeds(data: Sequence[Any]) -> list[Any]:
    """Recipe, seed, name of the variant and figures of each run of the quickstart."""
    names = {"rl": "as it is", "lr0": "learning rate 0"}
    return [
        {"recipe": one["recipe"], "seed": seed, "variant": names[variant], **run}
        for one in data
        for seed, variants in one["seeds"].items()
        for variant, run in variants.items()
        if variant in names
    ]


def differences(result: Any) -> list[Any]:
    """The differences of an ablation with one change. An earlier version wrote them without `comparisons`."""
    compared = result.get("comparisons", [result])
    found: list[Any] = compared[0]["differences"]
    return found


def answered(server: Any, word: str) -> int:
    """Number of calls whose result begins with a word."""
    return sum(result.startswith(word) for result in server["answers"].values())


RETRIEVAL = (
    Measurement(
        "Search in an index",
        ("retrieval.json",),
        "retrieval",
        "Time and memory of a search among generated records, without the embedding of the task.",
        (
            figures(("records", "build|records"), ("build of the lexical index", "build|bm25_build_s", "s")),
            rows(
                "queries",
                ("retriever", "@"),
                ("median", "p50_ms", "ms"),
                ("95th percentile", "p95_ms", "ms"),
                ("memory", "resident_mb", "MB"),
                ("recall of the best 10", lambda one: one.get("recall_at_10"), "%"),
            ),
        ),
        "[Retrieval](../retrieval.md#retrievers) describes the retrievers.",
    ),
    Measurement(
        "Guard by outputs",
        ("guard_behaviour.json",),
        "guard_behaviour",
        "Equal references that others wrote, by kind, and different ones that look alike, which the guard calls equal.",
        (
            rows(
                "equal|classes",
                ("equal references", "@"),
                ("planted", "references"),
                ("found by source", "by_source"),
                ("found by outputs", "by_behaviour"),
                ("excluded", "excluded"),
            ),
            figures(
                ("equal references excluded", "equal|share", "%"),
                ("different references", "different|different"),
                ("different references excluded", "different|share", "%"),
                ("references with another number, called", "other_number|called"),
                ("of these equal by outputs", "other_number|by_behaviour"),
                ("tasks of KernelBench and starter", "kernelbench|tasks"),
                ("of these not called", lambda data: len(data["kernelbench"]["tasks_not_called"])),
                ("equal pairs of these", lambda data: sum(map(len, data["kernelbench"]["pairs"].values()))),
                ("by outputs alone", lambda data: len(data["kernelbench"]["pairs"]["by_behaviour_alone"])),
                ("generated tasks of starter", "generated|tasks"),
                (
                    "of these equal to a held-out task",
                    lambda data: sum(map(len, data["generated"]["equal"].values())),
                ),
            ),
        ),
    ),
    Measurement(
        "Quality of retrieval",
        ("retrieval_quality.json",),
        "retrieval_quality",
        "Share of planted neighbours that a retriever finds among distractors; share of neighbours in its examples.",
        (
            rows(
                "retrievers",
                ("retriever", "@"),
                ("recall", "recall_without_guard", "%"),
                ("precision with the guard", "precision_with_guard", "%"),
                ("neighbours that solve the task, shown", "neighbours_shown_with_guard"),
            ),
        ),
    ),
    Measurement(
        "Embedding on a GPU",
        ("embedding_gpu.json",),
        "embedding_gpu",
        "Records per second that `kernelrl index build --device cuda` embeds with a model of 1.5 billion parameters.",
        (
            figures(
                ("records per second", "records_per_second"),
                ("tokens per second", "tokens_per_second"),
                ("share of the speed of a matrix product of size 8192", "share_of_matmul", "%"),
            ),
        ),
    ),
    Measurement(
        "Effect of retrieval on the quickstart",
        ("ablation_raicl.json",),
        "kernelrl ablate quickstart_raicl retriever=null",
        "Held-out results of the quickstart with similar kernels in the prompt and without them.",
        (
            rows(
                lambda data: [row for row in differences(data[0]) if row["base"] is not None],
                ("metric", "metric"),
                ("with", "base"),
                ("without", "changed"),
                ("difference", "difference"),
                ("95 % interval", "interval"),
            ),
        ),
        "The small model learns less with them. [Ablation](../evaluation.md#ablation) describes the method.",
    ),
)

LEARNING = (
    Measurement(
        "Quickstart",
        ("quickstart.json", "quickstart_cpp.json"),
        "quickstart",
        "Share of correct kernels before and after training, beside the same run with learning rate 0.",
        (
            rows(
                seeds,
                ("recipe", "recipe"),
                ("seed", "seed"),
                ("run", "variant"),
                ("training tasks, first 3 steps", "first_3", "%"),
                ("last 3 steps", "last_3", "%"),
                ("held-out tasks, before", "held_out_before", "%"),
                ("after", "held_out_after", "%"),
                ("seconds", "seconds"),
                ("memory", "peak_gib", "GiB"),
            ),
        ),
    ),
    Measurement(
        "Policy torch",
        ("policy_torch.json",),
        "policy_torch",
        "Speed of policy `torch` on the tasks and prompts of the quickstart.",
        (
            figures(
                ("warm start", "warm_start_seconds", "s"),
                ("sampled tokens per second", "sampling_tokens_per_second"),
                ("trained reply tokens per second", "training_reply_tokens_per_second"),
            ),
        ),
    ),
    Measurement(
        "Sampling of a Hugging Face model on a GPU",
        ("sampling_gpu.json",),
        "sampling",
        "256 replies of 256 tokens with LoRA adapters in bfloat16, and a training step with one sample per row.",
        (
            figures(
                ("sampled tokens per second", "rows|kernelrl|tokens_per_second"),
                ("model, per token", "rows|kernelrl|milliseconds|model", "ms"),
                ("drawing, per token", "rows|kernelrl|milliseconds|draw", "ms"),
                ("memory", "rows|kernelrl|peak_gb", "GB"),
                ("trained tokens per second", "rows|training|16384|tokens_per_second"),
                ("mean gap of log-probabilities to the learner's", "rows|agreement|logprob_gap_mean"),
            ),
        ),
        "`transformers.generate` with a dynamic cache did not finish three such batches in 70 s, its start included. "
        "Of 64 new tokens per reply, kernelrl samples a batch in 1.1 s; `generate` needs 11.8 s for its first batch "
        "with a dynamic cache, and finished none in 60 s with a static one, for which it compiles the model.",
    ),
    Measurement(
        "Feedback in the second turn",
        ("multi_turn_feedback.json",),
        "multi_turn_feedback",
        "Share of wrong first turns that the second turn of the trained multi-turn quickstart repairs.",
        (
            rows(
                lambda data: [
                    {"feedback": feedback, "tasks": split.replace("_", "-"), **data[0][feedback][split]}
                    for feedback in ("minimal", "none")
                    for split in ("train", "held_out")
                ],
                ("feedback", "feedback"),
                ("tasks", "tasks"),
                ("wrong first turns", "wrong_first"),
                ("repaired", "repaired", "%"),
            ),
        ),
        "The small model gains nothing from feedback here: `none` is the control.",
    ),
    Measurement(
        "Tinker's SDK against a local server",
        ("tinker_local.json",),
        "tinker_local",
        "A run through Tinker's SDK and `kernelrl tinker-server`, compared with the same run in process.",
        (
            figures(
                ("same replies", "same_replies"),
                ("same advantages", "same_advantages"),
                ("same weights", "same_weights"),
            ),
        ),
    ),
    Measurement(
        "Loop of tinker-cookbook",
        ("cookbook_loop.json",),
        "cookbook_loop",
        "Share of correct kernels on held-out tasks while tinker-cookbook's own loop trains on a recipe.",
        (
            figures(
                ("before training", "held_out_correct|0", "%"),
                ("after training", "held_out_correct|2", "%"),
                ("seconds", "seconds", "s"),
            ),
        ),
    ),
    Measurement(
        "Recipes of tinker-cookbook",
        ("cookbook_recipes.json",),
        "cookbook_recipes",
        "Recipes of tinker-cookbook, unchanged, from their own command lines, against `kernelrl tinker-server`.",
        (
            rows(
                lambda data: data[0]["recipes"],
                ("recipe", "recipe"),
                ("result", "result"),
                ("LoRA rank", "lora_rank"),
                ("seconds", "seconds", "s"),
                ("command", "command"),
            ),
        ),
        "The model is tiny. `runs`: the recipe ended without an error and changed its weights. `refused`: "
        "the first sample for its loss `stable_reinforce` was refused. `harbor_rl` was not run: its agent works in a "
        "container of Modal.",
    ),
    Measurement(
        "Servers with Tinker's interface",
        ("tinker_servers.json",),
        "tinker_servers",
        "Calls of policy `tinker` that a server serves.",
        (
            rows(
                "servers",
                ("server", "@"),
                ("SDK of the client", "sdk"),
                ("calls that it serves", lambda row: answered(row, "yes")),
                ("calls that it refuses", lambda row: answered(row, "no")),
            ),
        ),
        "[Policy `tinker`](../../plugins/kernelrl-plugin-tinker/README.md) has the table of calls.",
    ),
    Measurement(
        "SkyRL beside policy torch",
        ("server_speed.json",),
        "server_speed",
        "Seconds per step of policy `tinker` with SkyRL on two GPUs, and of policy `torch` on one of them, without the "
        "first step.",
        (
            rows(
                "rows",
                ("policy", "@"),
                ("step", "seconds"),
                ("sampling", "sampling_s"),
                ("learning", "learning_s"),
                ("sampled tokens per second", "sampled_tokens_per_second"),
                ("trained tokens per second", "trained_tokens_per_second"),
            ),
        ),
        "[Train on your own GPUs with SkyRL](../tutorials/skyrl.md) has the commands.",
    ),
)
