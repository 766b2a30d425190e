"""Sampling of a Hugging Face model by policy `torch` against `transformers.generate`, and a training step.

    python benchmarks/sampling.py --model smollm2-135m --reply-tokens 64 --rounds 1 --budget-s 400 --output FILE.json
    python benchmarks/sampling.py --model smollm2-135m --device cpu --dtype float32 --rows 2 --group 1 --output FILE

All methods sample replies of the same length to the same prompts, in one batch, with the same weights and adapters;
`transformers.generate` with a static cache, for which it compiles the model on a GPU, and with a dynamic one. A part
that takes longer than `--limit-s` is recorded as such, with the batches until then. The log-probabilities of the
sampler are compared with those of the learner, and greedy tokens with those of transformers. Another call continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import machine
from rows import Row, Rows

from kernelrl_core.types.replies import Reply
from kernelrl_core.types.training import SamplingSettings
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.drawing import draw
from kernelrl_plugin_torch.huggingface import HuggingFaceModel
from kernelrl_plugin_torch.language_model import PromptAndReply
from kernelrl_plugin_torch.learner import Datum, Learner, Totals
from kernelrl_plugin_torch.sampler import Request, Sampler

METHODS = ("kernelrl", "generate_static", "generate_dynamic")
PARTS = {
    **{name: ["--part", "method", "--method", name] for name in METHODS},
    "agreement": ["--part", "agreement"],
    "training": ["--part", "training"],
    "kernelrl_plain": ["--part", "method", "--method", "kernelrl", "--plain"],
    "generate_dynamic_plain": ["--part", "method", "--method", "generate_dynamic", "--plain"],
}
DEVICE_ROUNDS = 20
LEAST_PART_S = 20.0
"""Remaining time of the budget in which a part is started."""


def prompts_of(options: argparse.Namespace) -> list[tuple[int, ...]]:
    """Prompts of random tokens, each several times, as in the groups of a step."""
    generator = torch.Generator().manual_seed(0)
    distinct = options.rows // options.group
    lengths = torch.randint(options.prompt_tokens * 3 // 4, options.prompt_tokens + 1, (distinct,), generator=generator)
    made = [torch.randint(300, 40_000, (int(length),), generator=generator).tolist() for length in lengths]
    return [tuple(prompt) for prompt in made for _ in range(options.group)]


def loaded(options: argparse.Namespace, *, rank: int | None, dtype: str | None = None) -> HuggingFaceModel:
    config = TorchConfig(
        model=options.model, device=options.device, dtype=dtype or options.dtype, lora_rank=rank, context_tokens=4096
    )
    model = HuggingFaceModel(config, seed=0)
    model.stop_tokens = frozenset()  # replies of equal length
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if "lora_B" in name:  # zero at the start, so the adapters would have no effect
                parameter.normal_(std=0.01)
    return model


def finished() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def sampled(sampler: Sampler, prompts: list[tuple[int, ...]], n_tokens: int, temperature: float = 1.0) -> list[Reply]:
    replies: dict[int, Reply] = {}

    def fail(error: BaseException) -> None:
        raise error

    for index, prompt in enumerate(prompts):
        settings = SamplingSettings(n_tokens, temperature, 1.0, -1, (), index)

        def deliver(reply: Reply, index: int = index) -> None:
            replies[index] = reply

        sampler.submit(Request(prompt, settings, deliver, fail, lambda: True))
    sampler.run()
    return [replies[index] for index in range(len(prompts))]


def repeated(work: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each call of `work` after a first one that is not counted. Prints them as they come."""
    seconds: list[float] = []
    for _ in range(rounds + 1):
        finished()
        started = time.perf_counter()
        work()
        finished()
        seconds.append(time.perf_counter() - started)
        print(json.dumps({"first_batch_and_others_s": [round(value, 2) for value in seconds]}), flush=True)
    return seconds[1:]


def throughput(seconds: list[float], options: argparse.Namespace) -> Row:
    return {
        "seconds": [round(value, 3) for value in seconds],
        "tokens_per_second": round(options.rows * options.reply_tokens / min(seconds)),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if torch.cuda.is_available() else None,
    }


def measure_kernelrl(options: argparse.Namespace, rank: int | None) -> Row:
    model = loaded(options, rank=rank)
    sampler = Sampler(model, options.rows)
    prompts = prompts_of(options)

    def work() -> None:
        sampler.weights_changed()  # every step begins with the forward pass of its prompts
        sampled(sampler, prompts, options.reply_tokens)

    row = throughput(repeated(work, options.rounds), options)
    row["cache"] = "static, continuous batching" if model.joins else "dynamic"
    if model.joins:
        row["milliseconds"] = step_parts(model, options, prompts)
    return row


@torch.inference_mode()
def step_parts(model: HuggingFaceModel, options: argparse.Namespace, prompts: list[tuple[int, ...]]) -> Row:
    """Device times of the parts of a step of sampling, in milliseconds."""
    decoder: Any = model.decoder(options.rows, 0)
    prefixes = model.prefill(prompts[:: options.group])
    for row in range(options.rows):
        decoder.admit(row, prefixes[row // options.group])
    tokens = torch.full((options.rows,), 100, device=model.device)
    logits = decoder.step(tokens)
    numbers = torch.rand(options.rows, dtype=torch.float64)
    settings = [SamplingSettings(1, 1.0, 1.0, -1, (), 0)] * options.rows
    parts: dict[str, Callable[[], Any]] = {
        "model": lambda: decoder.step(tokens),
        "draw": lambda: draw(logits, numbers, settings),
        "prefill": lambda: model.prefill(prompts[:: options.group]),
    }
    found = {}
    for name, part in parts.items():
        part()
        finished()
        started = time.perf_counter()
        for _ in range(DEVICE_ROUNDS):
            part()
        finished()
        found[name] = round(1000 * (time.perf_counter() - started) / DEVICE_ROUNDS, 3)
    return found


@torch.inference_mode()
def measure_generate(options: argparse.Namespace, rank: int | None, implementation: str | None) -> Row:
    model = loaded(options, rank=rank)
    rows = prompts_of(options)
    longest = max(map(len, rows))
    tokens = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=model.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=model.device)
    model.module.eval()

    def work() -> Any:
        return model.module.generate(
            input_ids=tokens, attention_mask=mask, do_sample=True, temperature=1.0, top_p=1.0, top_k=0, pad_token_id=0,
            min_new_tokens=options.reply_tokens, max_new_tokens=options.reply_tokens,
            cache_implementation=implementation,
        )  # fmt: skip

    row = throughput(repeated(work, options.rounds), options)
    row["cache"] = implementation or "dynamic"
    return row


def measure_method(options: argparse.Namespace, rank: int | None) -> Row:
    if options.method == "kernelrl":
        return measure_kernelrl(options, rank)
    return measure_generate(options, rank, "static" if options.method == "generate_static" else None)


def agreement(options: argparse.Namespace) -> Row:
    """Log-probabilities of sampler and learner, and greedy tokens of the sampler and of transformers in float32."""
    model = loaded(options, rank=options.rank)
    prompts = prompts_of(options)[:: options.group]
    replies = sampled(Sampler(model, options.rows), prompts, options.reply_tokens)
    learner = Learner(model, 16384)
    scored = learner.logprobs([PromptAndReply(p, reply.tokens) for p, reply in zip(prompts, replies, strict=True)])
    pairs = [pair for reply, row in zip(replies, scored, strict=True) for pair in zip(reply.logprobs, row, strict=True)]
    gaps = [abs(sampler - trainer) for sampler, trainer in pairs]
    exact = loaded(options, rank=options.rank, dtype="float32")
    few, n_tokens = prompts[:8], 64
    greedy = sampled(Sampler(exact, len(few)), few, n_tokens, temperature=0.0)
    equal = 0
    for prompt, reply in zip(few, greedy, strict=True):
        given = torch.tensor([prompt], device=exact.device)
        with torch.inference_mode():
            expected = exact.module.generate(
                input_ids=given, attention_mask=torch.ones_like(given), do_sample=False, pad_token_id=0,
                min_new_tokens=n_tokens, max_new_tokens=n_tokens,
            )  # fmt: skip
        equal += list(reply.tokens) == expected[0, len(prompt) :].tolist()
    return {
        "logprob_gap_mean": sum(gaps) / len(gaps),
        "logprob_gap_max": max(gaps),
        "tokens": len(gaps),
        "greedy_replies_equal_in_float32": f"{equal} of {len(few)}",
    }


def training(options: argparse.Namespace) -> Row:
    """Seconds of a step with one sample per row, by the tokens of a forward and backward pass."""
    found: Row = {}
    for limit in options.train_tokens:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        found[str(limit)] = training_step(options, limit)
    return found


def training_step(options: argparse.Namespace, train_tokens: int) -> Row:
    learner = Learner(loaded(options, rank=options.rank), train_tokens)
    reply = tuple(range(100, 100 + options.reply_tokens))
    sampled_logprobs = [-9.0] * len(reply)
    advantages = [1e-4] * len(reply)
    data = [Datum(prompt, reply, sampled_logprobs, advantages) for prompt in prompts_of(options)]
    seconds = repeated(lambda: learner.backward(data, "importance_sampling", (0.8, 1.2), Totals()), 1)
    tokens = sum(len(datum.prompt) + len(reply) for datum in data)
    return throughput(seconds, options) | {"tokens_per_second": round(tokens / min(seconds))}


def in_process(arguments: list[str], limit_s: float) -> Row:
    """The result of this program with other arguments, in a process of its own, so that memory and caches are new."""
    command = [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as late:
        printed = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        batches: Row = json.loads(printed.splitlines()[-1]) if printed.endswith("\n") else {}
        return {"error": f"more than {limit_s:.0f} s", **batches}
    if done.returncode:
        return {"error": "\n".join(done.stderr.splitlines()[-5:])}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def summary(rows: dict[str, Row]) -> Row:
    """The rows by their names, and the sampler's rate beside the best of `generate`."""
    rates = {name: row["tokens_per_second"] for name, row in rows.items() if "tokens_per_second" in row}
    others = {name: rates[name] for name in ("generate_static", "generate_dynamic") if name in rates}
    if "kernelrl" not in rates or not others:
        return {}
    best = max(others, key=lambda name: others[name])
    return {"beside": best, "times_the_tokens_per_second": round(rates["kernelrl"] / others[best], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="value of policy.model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rank", type=int, default=16, help="rank of the adapters")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--group", type=int, default=8, help="replies per prompt")
    parser.add_argument("--prompt-tokens", type=int, default=400)
    parser.add_argument("--reply-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--train-tokens", type=int, nargs="*", default=[8192, 16384, 32768])
    parser.add_argument("--limit-s", type=float, default=120.0, help="maximum seconds of one method")
    parser.add_argument("--budget-s", type=float, default=500.0, help="maximum seconds of this call")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="in this order")
    parser.add_argument("--part", choices=["method", "agreement", "training"], help="measure only this, and print it")
    parser.add_argument("--method", choices=METHODS, default="kernelrl")
    parser.add_argument("--plain", action="store_true", help="with --part method: without adapters")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.part is not None:
        measures = {
            "method": lambda: measure_method(options, None if options.plain else options.rank),
            "agreement": lambda: agreement(options),
            "training": lambda: training(options),
        }
        print(json.dumps(measures[options.part]()))
        return
    if options.output is None:
        parser.error("--output is missing")
    own = ("output", "part", "method", "plain", "parts", "budget_s", "limit_s")
    kept = {key: value for key, value in vars(options).items() if key not in own}
    origin: Row = {**machine("torch", "transformers", "peft"), "options": kept}
    if options.device == "cuda":
        origin["gpu"] = torch.cuda.get_device_name()
    arguments = [word for key, value in kept.items() for word in words(key, value)]
    with Rows(options.output, origin, summary, options.budget_s) as rows:
        for name in rows.missing(options.parts):
            if rows.left_s > LEAST_PART_S:
                rows.add(name, in_process([*arguments, *PARTS[name]], min(options.limit_s, rows.left_s)))


def words(key: str, value: Any) -> list[str]:
    """An option and its value as on the command line."""
    values = value if isinstance(value, list) else [value]
    return [f"--{key.replace('_', '-')}", *map(str, values)]


if __name__ == "__main__":
    main()
