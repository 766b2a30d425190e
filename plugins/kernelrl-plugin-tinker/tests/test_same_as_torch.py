"""Training through the SDK and a local server gives the same results as policy `torch` in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from kernelrl_core.api.policies import Message, PolicyContext, Reply, TrainingSample, Update
from kernelrl_plugin_tinker.config import LocalModel, TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.policy import TorchPolicy
from kernelrl_testing.core import MismatchSettings, shape_samples, split_evenly

SIZES: dict[str, Any] = {"width": 64, "layers": 2, "heads": 2, "context_tokens": 256}
PROMPTS = [
    (Message("user", f"Write a kernel for {name}.\nAnswer with one line.\n"),) for name in ("relu", "exp", "tan")
]


def tinker_policy() -> TinkerPolicy:
    return TinkerPolicy(TinkerConfig(server="local", local=LocalModel(**SIZES, warm_start_steps=30)))


def torch_policy() -> TorchPolicy:
    return TorchPolicy(TorchConfig(**SIZES, warm_start=WarmStart(steps=30)))


async def play(policy: Any, context: PolicyContext, sampling, steps, *, streamed: int = 0) -> list[dict[str, Any]]:
    """Sample and train for some steps; returns the replies, prompts and metrics of each step.

    Args:
        steps: (loss, substeps, optimizer) of each step, optionally with the settings `mismatch` and `kl`.
        streamed: number of samples whose passes are sent one by one before the update.
    """
    seen: list[dict[str, Any]] = []
    await policy.start(context)
    try:
        for number, (loss, substeps, settings, *more) in enumerate(steps):
            prompts = [policy.render(messages) for messages in PROMPTS]
            requests = [(prompt, sampling(100 * number + i, stop=("!",))) for prompt in prompts for i in range(4)]
            replies = await asyncio.gather(*(policy.sample(*one) for one in requests))
            samples = tuple(
                TrainingSample(
                    str(i), prompt.tokens, reply.tokens, _moved(reply, 0.1 * i if streamed else 0), 1.5 - i % 4
                )
                for i, ((prompt, _), reply) in enumerate(zip(requests, replies, strict=True))
            )
            shaping = dict(*more)
            if "mismatch" in shaping:
                shaping["current"] = await policy.logprobs(samples, "current")
            if "kl" in shaping:
                shaping["reference"] = await policy.logprobs(samples, "reference")
            shaped = shape_samples(samples, 50.0, **shaping)
            for sample in shaped.samples[:streamed]:
                await policy.backward((sample,), loss)
            parts = tuple(map(tuple, split_evenly(shaped.samples, substeps)))
            metrics = await policy.update(Update(number, parts, (1,) * streamed, loss, settings)) if parts else {}
            seen.append(
                {"replies": replies, "prompts": [p.tokens for p in prompts], "metrics": {**metrics, **shaped.metrics}}
            )
    finally:
        await policy.aclose()
    return seen


def _moved(reply: Reply, by: float) -> tuple[float, ...]:
    return tuple(logprob - by for logprob in reply.logprobs)


def both(make_context, sampling, steps, *, streamed: int = 0, **context) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    there, here = (
        asyncio.run(play(policy, make_context(run=run, **context), sampling, steps, streamed=streamed))
        for run, policy in (("there", tinker_policy()), ("here", torch_policy()))
    )
    return list(zip(there, here, strict=True))


def test_replies_log_probabilities_and_losses_are_equal(make_context, sampling, loss, optimizer) -> None:
    """Bitwise equal where the API transmits all bits; replies of a step depend on all earlier updates."""
    steps = [
        (loss("importance_sampling"), 1, optimizer()),
        (loss("ppo"), 3, optimizer()),
        (loss("cispo"), 2, optimizer(max_grad_norm=None)),
        (loss("ppo", ratio="sequence"), 2, optimizer()),
    ]
    for there, here in both(make_context, sampling, steps):
        assert there["prompts"] == here["prompts"]
        for mine, other in zip(there["replies"], here["replies"], strict=True):
            assert (mine.text, mine.tokens, mine.stop_reason) == (other.text, other.tokens, other.stop_reason)
            assert mine.logprobs == tuple(np.float32(other.logprobs).tolist())  # sent as single precision
        numbers = there["metrics"]
        assert numbers.pop("retried") == 0
        assert numbers == pytest.approx(here["metrics"], rel=1e-5, abs=1e-7)
        assert numbers["loss"] == here["metrics"]["loss"]
        assert numbers["grad_norm"] == here["metrics"]["grad_norm"]


def test_streamed_passes_have_equal_metrics(make_context, sampling, loss, optimizer) -> None:
    """Four passes of one sample each, then the other two of the first six; `mismatch` covers all six."""
    ((there, here),) = both(make_context, sampling, [(loss("ppo"), 2, optimizer())], streamed=4)
    numbers = there["metrics"]
    del numbers["retried"]
    # The mean of 0, 0.1 … 0.5, for replies of nearly equal length.
    assert here["metrics"]["mismatch"] == pytest.approx(0.25, abs=0.1)
    assert numbers["mismatch"] == pytest.approx(here["metrics"]["mismatch"], rel=1e-3)
    assert numbers == pytest.approx(here["metrics"], rel=1e-4, abs=1e-6)


def test_reference_log_probabilities_and_rejection_are_equal(make_context, sampling, loss, optimizer) -> None:
    """The reference policy is computed in batches by only one of the policies, so results agree up to rounding."""
    strict = MismatchSettings(sequence_low=0.9999999, sequence_high=1.0000001)
    steps = [
        (loss("ppo"), 1, optimizer(), {"kl": 0.1}),
        (loss("ppo"), 1, optimizer(), {"kl": 0.1}),
        (loss("ppo"), 1, optimizer(), {"mismatch": strict}),
    ]
    pairs = both(make_context, sampling, steps, reference=True)
    for there, here in pairs[:2]:
        assert there["metrics"]["kl_reference"] == pytest.approx(here["metrics"]["kl_reference"], abs=1e-5)
        assert there["metrics"]["loss"] == pytest.approx(here["metrics"]["loss"], rel=1e-3, abs=1e-5)
    assert pairs[0][0]["metrics"]["kl_reference"] == pytest.approx(0, abs=1e-6)
    assert pairs[1][0]["metrics"]["kl_reference"] != pytest.approx(0, abs=1e-4)
    assert 0 <= pairs[2][0]["metrics"]["rejected"] <= 1
