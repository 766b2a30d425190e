"""Train with tinker-cookbook's own loop on the environment of a recipe, against the local Tinker server.

    python benchmarks/cookbook_loop.py --output benchmarks/results/cookbook_loop.json

The unmodified `tinker_cookbook.rl.train.main` trains the quickstart's model (from scratch, with the quickstart's warm
start) with the quickstart's tasks, judge and rewards. Losses, advantages and the optimizer are the cookbook's. Its
evaluator measures the held-out split before the first step, before the last one and, since tinker-cookbook 0.6, at the
end. Needs `kernelrl-adapters[cookbook]` and `kernelrl-tinker-server`; no GPU, key or network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TINKER_TELEMETRY", "0")

from provenance import provenance
from tinker_cookbook.rl import train

from kernelrl_adapters.cookbook import KernelDatasetBuilder
from kernelrl_adapters.shared import make_environment, read_recipe, recipe_of
from kernelrl_core.environment.demonstrations import Demonstrations
from kernelrl_core.interfaces.policies import PolicyContext
from kernelrl_core.storage import cache_directory
from kernelrl_core.types.seeds import derived_seed
from kernelrl_tinker_server.local import LocalServer
from kernelrl_tinker_server.models import warm_started_model

CONTEXT_TOKENS = 1024
OVERRIDES = ("train.tasks_per_step=8", "train.group_size=8", "eval.samples=8")


async def warm_start(text: str) -> Path:
    """Directory of the quickstart's model before reinforcement learning."""
    recipe = recipe_of(text)
    environment = make_environment(recipe)
    demonstrations = Demonstrations(environment)
    try:
        context = PolicyContext(
            derived_seed(recipe.seed, "policy"),
            cache_directory(),
            None,
            demonstrations.examples,
            await demonstrations.key(),
            say=print,
        )
        options = recipe.policy.options
        return await warm_started_model(
            context,
            width=options.width,
            layers=options.layers,
            heads=options.heads,
            context_tokens=CONTEXT_TOKENS,
            vocabulary=options.vocabulary,
            warm_start_steps=options.warm_start_settings.steps,
        )
    finally:
        await environment.aclose()


def trained(text: str, model: Path, steps: int, directory: Path) -> list[dict[str, Any]]:
    """Rows of the cookbook's metrics."""
    recipe = recipe_of(text)
    with LocalServer(state=directory / "server", model=str(model)) as server:
        os.environ["TINKER_API_KEY"] = server.api_key
        name = server.models[0]
        dataset = KernelDatasetBuilder(
            recipe="quickstart",
            overrides=OVERRIDES,
            model_name=name,
            renderer_name="chat_template",
            context_tokens=CONTEXT_TOKENS,
        )
        config = train.Config(
            learning_rate=recipe.train.learning_rate,
            dataset_builder=dataset,
            model_name=name,
            recipe_name="kernelrl",
            max_tokens=recipe.sampling.max_tokens,
            log_path=str(directory / "run"),
            eval_every=steps - 1,
            save_every=0,
            base_url=server.base_url,
            max_steps=steps,
            rollout_error_tolerance=True,
        )
        asyncio.run(train.main(config))
    return [json.loads(line) for line in (directory / "run/metrics.jsonl").read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    text = read_recipe("quickstart", OVERRIDES)
    head = provenance("tinker", "tinker-cookbook", "tml-renderers", "torch", "transformers")
    model = asyncio.run(warm_start(text))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        rows = trained(text, model, arguments.steps, Path(directory))
    names = {
        "env/all/reward/total": "reward",
        "env/all/correct": "correct",
        "test/env/all/correct": "held_out_correct",
        "time/total": "seconds",
    }
    steps = [{short: round(row[name], 4) for name, short in names.items() if name in row} for row in rows]
    steps = [step for step in steps if step]  # rows without a step summarise the whole run
    result = {
        "provenance": head,
        "overrides": OVERRIDES,
        "seed": recipe_of(text).seed,
        "seconds": round(time.monotonic() - begin, 1),
        "held_out_correct": [step["held_out_correct"] for step in steps if "held_out_correct" in step],
        "steps": steps,
    }
    for number, step in enumerate(steps):
        print(number, step)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
