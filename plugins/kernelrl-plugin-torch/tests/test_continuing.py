"""Weights of a checkpoint: in a new run, in a longer run, and in a held-out evaluation."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import torch

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import TrainingSample
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.policy import TorchPolicy
from kernelrl_testing.waiting import DEADLINE_S

SMALL = TorchConfig(
    width=64,
    layers=2,
    heads=2,
    context_tokens=256,
    warm_start=WarmStart(steps=3, prompts_per_step=2, replies_per_prompt=2),
)


async def started(context, options: TorchConfig = SMALL) -> TorchPolicy:
    policy = TorchPolicy(options)
    await policy.start(context)
    return policy


async def sampled(policy: TorchPolicy, bundled, sampling) -> tuple[TrainingSample, ...]:
    prompt = policy.render(bundled[0].messages)
    replies = [await policy.sample(prompt, sampling(seed)) for seed in (1, 2)]
    return tuple(
        TrainingSample(f"0.0.{i}.0", prompt.tokens, reply.tokens, reply.logprobs, 1.0 - 2 * i)
        for i, reply in enumerate(replies)
    )


def test_policy_begins_with_saved_weights_a_new_optimizer_and_no_warm_start(
    make_context, bundled, sampling, make_update, tmp_path: Path
) -> None:
    async def work() -> None:
        first = await started(make_context())
        samples = await sampled(first, bundled, sampling)
        await first.update(make_update(samples))
        state = await first.save(tmp_path)
        await first.aclose()
        # Another recipe, whose warm start is not cached.
        context = attrs.evolve(make_context("other tasks", seed=9), weights_follow=True, reference=True)
        asked = make_context.asked
        second = await started(context)
        await second.begin_from(state, tmp_path)
        assert make_context.asked == asked
        again = tmp_path / "again"
        again.mkdir()
        assert (await second.save(again))["weights_sha256"] == state["weights_sha256"]
        assert torch.load(again / "policy.pt")["optimizer"]["state"] == {}
        assert torch.load(tmp_path / "policy.pt")["optimizer"]["state"] != {}
        # The reference policy is the saved weights, also after an update.
        before = await second.logprobs(samples, "current")
        await second.update(make_update(samples))
        assert await second.logprobs(samples, "reference") == before
        assert await second.logprobs(samples, "current") != before
        await second.aclose()

    asyncio.run(work())


def test_a_checkpoint_is_loaded_without_the_warm_start(make_context, bundled, sampling, tmp_path: Path) -> None:
    async def work() -> None:
        first = await started(make_context())
        expected = await sampled(first, bundled, sampling)
        state = await first.save(tmp_path)
        await first.aclose()
        asked = make_context.asked
        second = await started(attrs.evolve(make_context("not cached"), weights_follow=True))
        await second.load(state, tmp_path)
        assert await sampled(second, bundled, sampling) == expected
        assert make_context.asked == asked
        await second.aclose()

    asyncio.run(work())


def test_weights_of_another_size_are_one_message(make_context, tmp_path: Path) -> None:
    async def work() -> None:
        first = await started(make_context())
        state = await first.save(tmp_path)
        await first.aclose()
        second = await started(attrs.evolve(make_context(), weights_follow=True), attrs.evolve(SMALL, width=32))
        with pytest.raises(UsageError) as refused:
            await second.begin_from(state, tmp_path)
        sizes = "layers 2, heads 2"
        assert refused.value.message == (
            f"the model of the checkpoint {tmp_path} is one from scratch (width 64, {sizes}); "
            f"that of the recipe's policy is one from scratch (width 32, {sizes})"
        )
        await second.aclose()

    asyncio.run(work())


RECIPE = """
seed: 5
tasks:     {use: starter, names: [relu_double, abs_inc, square_dec], practice: 4}
backend:   {use: triton}
policy:    {use: torch, width: 32, layers: 1, heads: 2, context_tokens: 2048, warm_start: {steps: 4}}
evaluator: {use: fake}
evaluation: {trials: 1}
prompt:    {template: brief}
sampling:  {max_tokens: 20}
feedback:  {use: fake}
forbid:    []
rewards:   {text: {use: fake, of_text: true}}
train:     {tasks_per_step: 2, group_size: 2, steps: 1, loss: ppo, learning_rate: 2.0e-3, kl: 0.01}
"""
"""Replies are scored by their characters, so that an almost untrained model has advantages other than 0."""


@pytest.mark.slow
def test_extended_run_equals_a_run_with_more_steps_bit_for_bit_and_is_evaluated_without_a_warm_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "KERNELRL_RUN_SECRET": "5a" * 32, "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[3] / "tests/fakes")}

    def kernelrl(*arguments: str) -> str:
        command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "warm start" in kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=2")
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=2")
    a, whole = tmp_path / "runs/a", tmp_path / "runs/whole"
    files = sorted(path.relative_to(a) for path in (a / "checkpoints").rglob("*.*"))
    assert len(files) == 4
    for file in files:
        digests = [hashlib.sha256((run / file).read_bytes()).hexdigest() for run in (a, whole)]
        assert digests[0] == digests[1], file
    learned = [
        [
            {k: v for k, v in json.loads(line).items() if k.startswith(("train/", "reward/"))}
            for line in (run / "metrics.jsonl").read_text().splitlines()
        ]
        for run in (a, whole)
    ]
    assert learned[0] == learned[1]
    assert not any(row["train/skipped"] for row in learned[0])
    environment["KERNELRL_CACHE_DIR"] = str(tmp_path / "empty")
    assert "warm start" not in kernelrl("eval", "a", "--split", "train", "eval.max_tasks=1")
