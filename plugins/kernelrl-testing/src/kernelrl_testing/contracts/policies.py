"""The contract of policies."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import attrs

from kernelrl_core.interfaces.policies import PolicyContext, TrainablePolicy
from kernelrl_core.types import Message, Outcome, Prompt, Reply, WarmStartExample
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, SamplingSettings, TrainingSample, Update
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import calling, require, skipped_where_missing
from kernelrl_testing.contracts.policy_process import reply_elsewhere
from kernelrl_testing.values import make_task

__all__ = ["PolicyContract"]

_MAX_TOKENS = 32
_ROUNDING = 1e-9
_CLOSE = 1e-3
"""In nats: between two ways to compute one log-probability, where the policy is not deterministic."""
_TEMPERATURE = 0.5
_SEEDS = 16
_FIX_SAMPLE = "return a Reply that ends at max_tokens, with one log-probability per token or with none"
_FIX_BATCH = "compute each reply of a batch as if it were alone, or set deterministic=False in the capabilities"


class PolicyContract(ComponentContract):
    """A policy samples replies within its limits; a trainable one updates, saves, loads and begins from weights."""

    kind = "policies"
    limit_s: ClassVar[float] = 900.0

    def context(self, folder: Path) -> PolicyContext:
        """What `start` gets: a few demonstrations, and the first loss that the policy knows."""

        async def demonstrations() -> Sequence[WarmStartExample]:
            return _DEMONSTRATIONS

        loss = next(iter(sorted(self.use().options.capabilities().losses)), "")
        return PolicyContext(0, folder, None, demonstrations, "contract", lambda line: None, loss)

    def messages(self) -> tuple[Message, ...]:
        """The prompt that is sampled from."""
        return (Message("user", _PROMPT.format(reference=make_task().reference)),)

    def settings(self, seed: int) -> SamplingSettings:
        """Settings of a short reply."""
        return SamplingSettings(max_tokens=_MAX_TOKENS, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=seed)

    def run(self, folder: Path, scene: Any, *, weights_follow: bool = False) -> None:
        """Start the policy, await `scene(policy)`, close the policy twice."""
        self.require_prerequisites()
        context = attrs.evolve(self.context(folder), weights_follow=weights_follow)

        async def whole() -> None:
            policy = self.make()
            try:
                with skipped_where_missing():
                    await policy.start(context)
                with calling("a method of the policy", "raise classes of kernelrl_core.api.errors only"):
                    await scene(policy)
            finally:
                await policy.aclose()
                await policy.aclose()

        asyncio.run(whole())

    def test_capabilities_are_within_those_of_the_options(self, tmp_path: Path) -> None:
        bound = self.use().options.capabilities()

        async def scene(policy: Any) -> None:
            for field in attrs.fields(type(bound)):
                has, may = getattr(policy.capabilities, field.name), getattr(bound, field.name)
                message = f"capability {field.name}: the policy has {has!r}, capabilities() of the options {may!r}"
                require(has <= may, message, "return from capabilities() of the options all that start may set")
            trainable = not policy.capabilities.losses or isinstance(policy, TrainablePolicy)
            require(trainable, "the policy lists losses and is no TrainablePolicy", "derive it from TrainablePolicy")

        self.run(tmp_path, scene)

    def test_replies_keep_the_limits(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            prompt = policy.render(self.messages())
            fix = "return a Prompt with the given messages and their tokens"
            require(isinstance(prompt, Prompt), f"render returns {prompt!r}, not a Prompt", fix)
            require(prompt.messages == self.messages(), "render changes the messages", fix)
            length, context = len(prompt.tokens), policy.context_tokens
            require(0 < length < context, f"a prompt has {length} tokens, the context {context}", fix)
            for reply in await asyncio.gather(*(policy.sample(prompt, self.settings(seed)) for seed in range(4))):
                _require_within_limits(reply)

        self.run(tmp_path, scene)

    def test_a_deterministic_policy_repeats_a_reply(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            if not policy.capabilities.deterministic:
                raise SkipTest("the policy is not deterministic")
            prompt = policy.render(self.messages())
            longer = policy.render((Message("user", "Be brief.\n" + self.messages()[-1].content),))
            alone = await policy.sample(prompt, self.settings(1))
            prompts = (longer, prompt, prompt, longer)
            among = await asyncio.gather(*(policy.sample(one, self.settings(seed)) for seed, one in enumerate(prompts)))
            require(among[1] == alone, "a reply depends on the replies that are sampled with it", _FIX_BATCH)

        self.run(tmp_path, scene)

    def test_an_update_raises_better_replies(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            self._require_trainable(policy, "logprobs")
            samples = await self._two_samples(policy)
            if sorted(samples[0].tokens) == sorted(samples[1].tokens):
                raise SkipTest("all replies have the same tokens")
            before = await policy.logprobs(samples, "current")
            alone = [(await policy.logprobs([sample], "current"))[0] for sample in samples]
            message = "a log-probability depends on the samples that are computed with it"
            require(_gap(alone, before) <= _CLOSE, message, "mask padding, and compute each sample as if it were alone")
            await policy.update(self._update(policy, samples))
            after = await policy.logprobs(samples, "current")
            gains = [math.fsum(new) - math.fsum(old) for new, old in zip(after, before, strict=True)]
            message = (
                "an update changes the log-probability of a reply with a positive advantage by "
                f"{gains[0]:+.3g}, that of one with a negative advantage by {gains[1]:+.3g}"
            )
            fix = "minimise -advantage * log-probability: check the sign of the loss, and that update makes a step"
            require(gains[0] > gains[1], message, fix)

        self.run(tmp_path, scene)

    def test_tempered_log_probabilities_are_those_of_the_sampled_distribution(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            self._require_trainable(policy, "tempered")
            if not policy.capabilities.logprobs:
                raise SkipTest("the policy gives no log-probabilities")
            settings = attrs.evolve(self.settings(0), temperature=_TEMPERATURE, logprobs_temperature=_TEMPERATURE)
            prompt = policy.render(self.messages())
            reply = await policy.sample(prompt, settings)
            sample = TrainingSample("0.0.0.0", prompt.tokens, reply.tokens, reply.logprobs, 1.0, _TEMPERATURE)
            samples = [sample, attrs.evolve(sample, temperature=1.0)]
            found, at_one = await policy.logprobs(samples, "current")
            gap = _gap([reply.logprobs], [found])
            message = f"log-probabilities of a reply at temperature {_TEMPERATURE} differ by {gap:.3g} in training"
            fix = (
                "divide the logits by logprobs_temperature in sampling, and by the temperature of a sample in training"
            )
            require(gap <= _CLOSE, message, fix)
            require(_gap([found], [at_one]) > 0, "log-probabilities do not depend on the temperature", fix)

        self.run(tmp_path, scene)

    def test_streamed_gradients_equal_waiting(self, tmp_path: Path) -> None:
        saved = tmp_path / "checkpoint"
        saved.mkdir()

        async def scene(policy: Any) -> None:
            self._require_trainable(policy, "streams")
            if not policy.capabilities.logprobs:
                raise SkipTest("the policy gives no log-probabilities")
            samples = await self._two_samples(policy)
            state = json.loads(json.dumps(await policy.save(saved)))
            update = self._update(policy, samples)
            await policy.update(update)
            waited = await policy.logprobs(samples, "current")
            await policy.load(state, saved)
            for sample in update.substeps[0]:
                await policy.backward((sample,), update.loss)
            await policy.update(attrs.evolve(update, accumulated=(1, 1)))
            streamed = await policy.logprobs(samples, "current")
            limit = 0.0 if policy.capabilities.deterministic else _CLOSE
            gap = _gap(waited, streamed)
            message = f"log-probabilities after backward and update differ by {gap:.3g} from those after update alone"
            fix = "add up the gradients of backward, compute in update only those of the other samples, and clear them"
            require(gap <= limit, message, fix)

        self.run(tmp_path, scene)

    def test_a_trainable_policy_updates_saves_and_loads(self, tmp_path: Path) -> None:
        cache, saved = tmp_path / "cache", tmp_path / "checkpoint"
        cache.mkdir()
        saved.mkdir()
        kept: dict[str, Any] = {}

        async def train(policy: Any) -> None:
            self._require_trainable(policy)
            metrics = await policy.update(self._update(policy, await self._two_samples(policy)))
            finite = all(math.isfinite(value) for value in metrics.values())
            require(finite, f"a metric of update is not finite: {dict(metrics)}", "return finite numbers")
            kept["state"] = json.loads(json.dumps(await policy.save(saved)))
            kept["after"] = await policy.sample(policy.render(self.messages()), self.settings(3))
            kept["deterministic"] = policy.capabilities.deterministic

        self.run(cache, train)
        loaded = self.reply_elsewhere(kept["state"], saved)
        fix = "save and load weights and tokenizer exactly, without rounding"
        same = loaded == kept["after"] or not kept["deterministic"]
        require(same, "a policy that is loaded in another process replies differently", fix)

    def reply_elsewhere(self, state: Any, saved: Path) -> Reply:
        """The reply to `messages` with seed 3 of a policy that another process loads."""
        component = self.registry().find(self.kind, self.component)
        return reply_elsewhere(component, self.use().raw, state, saved, self.messages(), self.settings(3))

    def test_a_policy_that_begins_from_saved_weights_samples_the_same(self, tmp_path: Path) -> None:
        cache, saved = tmp_path / "cache", tmp_path / "checkpoint"
        cache.mkdir()
        saved.mkdir()
        kept: dict[str, Any] = {}

        async def save(policy: Any) -> None:
            if getattr(type(policy), "begin_from", None) in (None, TrainablePolicy.begin_from):
                raise SkipTest("the policy does not implement `begin_from`")
            await policy.update(self._update(policy, await self._two_samples(policy)))
            kept["state"] = json.loads(json.dumps(await policy.save(saved)))
            kept["reply"] = await policy.sample(policy.render(self.messages()), self.settings(3))

        async def begin(other: Any) -> None:
            await other.begin_from(kept["state"], saved)
            if other.capabilities.deterministic:
                again = await other.sample(other.render(self.messages()), self.settings(3))
                message = "a policy that begins from saved weights replies differently"
                require(again == kept["reply"], message, "load in begin_from the weights that save wrote")

        self.run(cache, save)
        self.run(cache, begin, weights_follow=True)

    def _require_trainable(self, policy: Any, capability: str = "") -> None:
        if not isinstance(policy, TrainablePolicy) or not policy.capabilities.losses:
            raise SkipTest("the policy is not trainable")
        if capability and not getattr(policy.capabilities, capability):
            raise SkipTest(f"the policy lacks the capability {capability}")

    async def _two_samples(self, policy: Any) -> list[TrainingSample]:
        """Two replies, different ones if the policy has any, of which the first is better."""
        prompt = policy.render(self.messages())
        first = other = await policy.sample(prompt, self.settings(1))
        for seed in range(2, _SEEDS):
            if sorted(other.tokens) != sorted(first.tokens):
                break
            other = await policy.sample(prompt, self.settings(seed))
        return [
            TrainingSample(f"0.0.{number}.0", prompt.tokens, reply.tokens, reply.logprobs, sign / 10)
            for number, (sign, reply) in enumerate(((1, first), (-1, other)))
        ]

    def _update(self, policy: Any, samples: Sequence[TrainingSample]) -> Update:
        weighed = tuple(
            LossSample(one.id, one.prompt_tokens, one.tokens, one.sampler_logprobs, (one.advantage,) * len(one.tokens))
            for one in samples
        )
        loss = Loss(sorted(policy.capabilities.losses)[0], 0.2, 0.2)
        return Update(0, (weighed,), (), loss, OptimizerSettings(1e-3, 0.9, 0.95, 1e-8, 0.0, 1.0))


def _gap(rows: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """Largest difference of two lists of log-probabilities."""
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row, other, strict=True)]
    return max((abs(one - other) for one, other in pairs), default=0.0)


def _require_within_limits(reply: Any) -> None:
    require(isinstance(reply, Reply), f"sample returns {reply!r}, not a Reply", _FIX_SAMPLE)
    length = len(reply.tokens)
    require(length <= _MAX_TOKENS, f"a reply has {length} tokens, max_tokens is {_MAX_TOKENS}", _FIX_SAMPLE)
    numbers = len(reply.logprobs)
    require(numbers in (0, length), f"a reply has {length} tokens and {numbers} log-probabilities", _FIX_SAMPLE)
    negative = all(value <= _ROUNDING for value in reply.logprobs)
    require(negative, "a log-probability of a reply is above 0", "return natural logarithms of probabilities")
    ends = reply.stop_reason in ("stop", "length")
    require(ends, f"stop_reason of a reply is {reply.stop_reason!r}", "use 'stop' or 'length'")


_PROMPT = "Write a kernel for this reference:\n{reference}"
_REPLY = "```python\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {operation}\n```"
_DEMONSTRATIONS = tuple(
    WarmStartExample(
        (Message("user", _PROMPT.format(reference=make_task().reference.replace("torch.relu(x)", operation))),),
        _REPLY.format(operation=operation),
        1.0,
        f"demonstration/{number}",
        Outcome.CORRECT,
    )
    for number, operation in enumerate(("torch.relu(x)", "torch.exp(x)", "x * x", "x + 1.0"))
)
