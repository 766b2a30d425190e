"""Speed of the policy `torch`: warm start, sampling and training on the tasks and prompts of a recipe.

    python benchmarks/policy_torch.py --output benchmarks/results/policy_torch.json

The warm start begins with an empty cache. Sampling and training use 8 tasks with 8 episodes each; the result is the
median of several repetitions. CPU time of the process is recorded beside wall time: other load disturbs it less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from provenance import provenance

from kernelrl_core.algorithms.loss_shaping import shape_samples
from kernelrl_core.environment.demonstrations import Demonstrations
from kernelrl_core.environment.environment import Environment
from kernelrl_core.interfaces.policies import PolicyContext
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.types.training import Loss, OptimizerSettings, SamplingSettings, TrainingSample, Update

TASKS, ATTEMPTS, ROUNDS = 8, 8, 7


async def timed(work: Callable[[], Awaitable[Any]]) -> tuple[Any, float, float]:
    """Result of `work`, with wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = await work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


async def measure(recipe_name: str, overrides: list[str]) -> dict[str, Any]:
    found = registry()
    recipe = load_recipe(recipe_name, overrides, registry=found).recipe
    with tempfile.TemporaryDirectory() as cache:
        environment = Environment.from_recipe(recipe, registry=found, secret=b"benchmark", cache_dir=None)
        policy = found.make("policies", recipe.policy)
        examples = await Demonstrations(environment).examples()

        async def demonstrations() -> Any:
            return examples

        context = PolicyContext(recipe.seed, Path(cache), None, demonstrations, "benchmark", print)
        _, warm_wall, warm_cpu = await timed(lambda: policy.start(context))
        tasks = environment.tasks.tasks(recipe.train.split)[:TASKS]
        prompts = [policy.render(environment.composer.messages(task)) for task in tasks]

        async def sample(seed: int) -> Any:
            return await asyncio.gather(
                *(
                    policy.sample(
                        prompt,
                        SamplingSettings(recipe.sampling.max_tokens, 1.0, 1.0, -1, (), seed + ATTEMPTS * place + n),
                    )
                    for place, prompt in enumerate(prompts)
                    for n in range(ATTEMPTS)
                )
            )

        async def train(replies: Any) -> Any:
            samples = tuple(
                TrainingSample(str(n), prompts[n // ATTEMPTS].tokens, reply.tokens, reply.logprobs, (-1.0) ** n)
                for n, reply in enumerate(replies)
            )
            optimizer = OptimizerSettings(0.0, 0.9, 0.95, 1e-8, 0.0, 1.0)
            substeps = (shape_samples(samples, 1000.0).samples,)
            return await policy.update(Update(0, substeps, (), Loss("ppo", 0.2, 0.2), optimizer))

        sampled, trained = [], []
        for turn in range(ROUNDS):
            sampled.append(await timed(lambda turn=turn: sample(1000 * turn)))
            trained.append(await timed(lambda replies=sampled[-1][0]: train(replies)))
        counts = [sum(len(reply.tokens) for reply in replies) for replies, _, _ in sampled]
        result = {
            "recipe": recipe_name,
            "overrides": overrides,
            "examples": len(examples),
            "warm_start_seconds": round(warm_wall, 1),
            "warm_start_cpu_seconds": round(warm_cpu, 1),
            "prompt_tokens": [len(prompt.tokens) for prompt in prompts],
            "reply_tokens_mean": round(sum(counts) / ROUNDS / TASKS / ATTEMPTS, 1),
            "replies": TASKS * ATTEMPTS,
            "sampling_seconds": round(statistics.median(wall for _, wall, _ in sampled), 3),
            "sampling_cpu_seconds": round(statistics.median(cpu for _, _, cpu in sampled), 3),
            "sampling_tokens_per_second": round(
                statistics.median(n / wall for n, (_, wall, _) in zip(counts, sampled, strict=True))
            ),
            "training_seconds": round(statistics.median(wall for _, wall, _ in trained), 3),
            "training_cpu_seconds": round(statistics.median(cpu for _, _, cpu in trained), 3),
            "training_reply_tokens_per_second": round(
                statistics.median(n / wall for n, (_, wall, _) in zip(counts, trained, strict=True))
            ),
            "kl_at_unchanged_weights": max(abs(metrics["kl"]) for metrics, _, _ in trained),
            "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        await policy.aclose()
        await environment.aclose()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*", help="key=value")
    arguments = parser.parse_args()
    begun = provenance("torch", "tokenizers")
    result = {**asyncio.run(measure(arguments.recipe, arguments.overrides)), "provenance": begun}
    print(json.dumps(result, indent=1))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
