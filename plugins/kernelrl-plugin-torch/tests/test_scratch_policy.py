"""The policy with a model from scratch."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import attrs
import pytest
import torch

from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.policies import Message, TrainingSample
from kernelrl_core.api.runs import metric_of
from kernelrl_plugin_torch import policy as policy_module
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.language_model import PromptAndReply
from kernelrl_plugin_torch.policy import TorchPolicy
from kernelrl_plugin_torch.sampler import rows_agree
from kernelrl_plugin_torch.scratch_model import ScratchModel
from kernelrl_plugin_torch.scratch_tokenizer import ScratchTokenizer
from kernelrl_testing.waiting import DEADLINE_S, takes_async

SMALL = TorchConfig(
    width=64,
    layers=2,
    heads=2,
    context_tokens=256,
    warm_start=WarmStart(steps=12, prompts_per_step=3, replies_per_prompt=2),
)


def run(work):
    return asyncio.run(work)


async def started(context, options: TorchConfig = SMALL) -> TorchPolicy:
    policy = TorchPolicy(options)
    await policy.start(context)
    return policy


def learnt(prompt, replies, advantages) -> tuple[TrainingSample, ...]:
    return tuple(
        TrainingSample(str(index), prompt.tokens, reply.tokens, reply.logprobs, advantage)
        for index, (reply, advantage) in enumerate(zip(replies, advantages, strict=True))
    )


@pytest.mark.parametrize("context_tokens", [128, 256, 400, 512, 1024, 1300, 1536])
def test_rows_agree_whatever_the_length_of_the_others(context_tokens: int) -> None:
    tokenizer = ScratchTokenizer.train([["some words\n"]], vocabulary=256, min_tasks=1)
    model = ScratchModel(tokenizer, width=128, layers=2, heads=4, context_tokens=context_tokens, seed=0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as the policy does
    try:
        assert rows_agree(model, 64)
    finally:
        torch.set_num_threads(before)


def test_a_reply_is_bitwise_equal_alone_and_in_a_batch_of_64(make_context, bundled, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompts = [policy.render(example.messages) for example in bundled[::9]]
        long = policy.render((Message("user", "some other words\n" * 9),))
        mine, own = prompts[3], sampling(77, max_tokens=60)
        alone = await policy.sample(mine, own)
        assert len(alone.tokens) > 3
        shuffle = random.Random(5)
        for _ in range(3):
            crowd = [(shuffle.choice([*prompts, long]), sampling(shuffle.getrandbits(40))) for _ in range(63)]
            place = shuffle.randrange(64)
            crowd.insert(place, (mine, own))
            replies = await asyncio.gather(*(policy.sample(prompt, settings) for prompt, settings in crowd))
            assert replies[place] == alone
        await policy.aclose()

    run(work())


def test_more_requests_than_rows_all_get_a_reply(make_context, bundled, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context(), attrs.evolve(SMALL, sample_rows=8))
        prompt = policy.render(bundled[0].messages)
        replies = await asyncio.gather(*(policy.sample(prompt, sampling(seed)) for seed in range(30)))
        again = await policy.sample(prompt, sampling(29))
        assert again == replies[29]
        await policy.aclose()

    run(work())


def test_replies_are_sampled_one_at_a_time_if_rows_differ(make_context, bundled, sampling, monkeypatch) -> None:
    monkeypatch.setattr(policy_module, "rows_agree", lambda model, rows: False)

    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        assert len(await asyncio.gather(*(policy.sample(prompt, sampling(seed)) for seed in range(3)))) == 3
        assert any("one reply at a time" in line for line in make_context.said)
        await policy.aclose()

    run(work())


def test_token_limits_and_stop_strings_cut_the_reply(make_context, bundled, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        short = await policy.sample(prompt, sampling(1, max_tokens=2))
        assert (short.stop_reason, len(short.tokens), len(short.logprobs)) == ("length", 2, 2)
        whole = await policy.sample(prompt, sampling(1))
        assert whole.tokens[:2] == short.tokens
        marker = whole.text[10:14]
        stopped = await policy.sample(prompt, sampling(1, stop=(marker,)))
        assert stopped.stop_reason == "stop"
        assert stopped.text == whole.text[: whole.text.find(marker) + 4]
        greedy = {(await policy.sample(prompt, sampling(seed, temperature=0.0))).tokens for seed in (1, 2)}
        assert len(greedy) == 1
        roomy = await policy.sample(prompt, sampling(1, max_tokens=10_000))
        assert len(prompt.tokens) + len(roomy.tokens) <= policy.context_tokens
        with pytest.raises(UsageError, match="no tokens remain"):
            await policy.sample(policy.render((Message("user", "é" * 300),)), sampling(1))
        await policy.aclose()

    run(work())


def test_a_cancelled_request_does_not_change_the_others(make_context, bundled, sampling, make_update) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        expected = [await policy.sample(prompt, sampling(seed)) for seed in range(4)]
        tasks = [asyncio.create_task(policy.sample(prompt, sampling(seed))) for seed in range(4)]
        await takes_async(0.005)
        tasks[1].cancel()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(got[1], asyncio.CancelledError)
        assert [got[0], *got[2:]] == [expected[0], *expected[2:]]
        await policy.aclose()
        await policy.aclose()
        with pytest.raises(KernelRLError, match="closed"):
            await policy.update(make_update(()))

    run(work())


def test_training_metrics_at_unchanged_weights(make_context, bundled, sampling, make_update, optimizer) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        replies = await asyncio.gather(*(policy.sample(prompt, sampling(seed)) for seed in range(8)))
        samples = learnt(prompt, replies, [1.0, 0.0] * 4)
        assert samples[0].sampler_logprobs
        metrics = await policy.update(make_update(samples, denominator=10.0, optimizer=optimizer(0.0)))
        definitions = {name: metric_of(f"train/{name}") for name in metrics}
        assert {name for name, found in definitions.items() if found is None or found.name == "train/*"} == set()
        n = sum(len(reply.tokens) for reply in replies)
        assert metrics["tokens"] == n
        assert abs(metrics["kl"]) < 1e-5
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        assert metrics["loss"] == pytest.approx(-sum(len(reply.tokens) for reply in replies[::2]) / 10, rel=1e-4)
        assert metrics["grad_norm"] > 0
        assert metrics["entropy"] > 0
        scores = policy._model.score([PromptAndReply(sample.prompt_tokens, sample.tokens) for sample in samples])
        recomputed = scores.logprobs.tolist()
        sampled = [x for sample in samples for x in sample.sampler_logprobs]
        assert max(abs(a - b) for a, b in zip(recomputed, sampled, strict=True)) < 1e-4
        await policy.aclose()

    run(work())


def test_sampler_and_trainer_agree_at_the_sampling_temperature(
    make_context, bundled, sampling, make_update, optimizer
) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        settings = [sampling(seed, temperature=0.7, logprobs_temperature=0.7) for seed in range(4)]
        replies = await asyncio.gather(*(policy.sample(prompt, one) for one in settings))
        plain = learnt(prompt, replies, [1.0, 0.0] * 2)
        samples = [attrs.evolve(sample, temperature=0.7) for sample in plain]
        at_one = await policy.logprobs(plain, "current")
        tempered = await policy.logprobs(samples, "current")
        for sample, found, other in zip(samples, tempered, at_one, strict=True):
            assert found == pytest.approx(list(sample.sampler_logprobs), abs=1e-4)
            assert found != pytest.approx(other, abs=1e-2)
        metrics = await policy.update(make_update(samples, optimizer=optimizer(0.0)))
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        assert metrics["mismatch"] < 1e-4
        await policy.aclose()

    run(work())


def test_a_sequence_ratio_is_shared_by_the_tokens_of_a_reply(
    make_context, bundled, sampling, make_update, loss, optimizer
) -> None:
    """The sampler log-probabilities are alternately 0.5 too large and too small. The mean token ratio is then
    cosh(0.5) = 1.1276, and the ratio of a reply with an even number of tokens is 1."""

    async def work() -> None:
        policy = await started(make_context())
        assert policy.capabilities.ratios == {"token", "sequence"}
        reply = await policy.sample(prompt := policy.render(bundled[0].messages), sampling(1))
        even = len(reply.tokens) // 2 * 2
        shifted = tuple(value + (0.5 if i % 2 else -0.5) for i, value in enumerate(reply.logprobs[:even]))
        samples = (TrainingSample("0", prompt.tokens, reply.tokens[:even], shifted, 1.0),)
        means = {}
        for ratio in ("token", "sequence"):
            step = make_update(samples, loss=attrs.evolve(loss("ppo"), ratio=ratio), optimizer=optimizer(0.0))
            means[ratio] = (await policy.update(step))["ratio_mean"]
        assert means == {"token": pytest.approx(1.1276, abs=1e-3), "sequence": pytest.approx(1.0, abs=1e-3)}
        await policy.aclose()

    run(work())


def test_training_increases_the_probability_of_a_reply_with_a_positive_advantage(
    make_context, bundled, sampling, make_update, loss, optimizer
) -> None:
    async def work() -> None:
        policy = await started(make_context())
        prompt = policy.render(bundled[0].messages)
        replies = [await policy.sample(prompt, sampling(seed)) for seed in (1, 2)]
        assert replies[0].tokens != replies[1].tokens
        samples = learnt(prompt, replies, [1.0, -1.0])
        still = make_update(samples, optimizer=optimizer(0.0))
        moving = {"denominator": 10.0, "substeps": 2, "loss": loss("ppo"), "optimizer": optimizer(1e-3, 1.0)}
        before = await policy.update(still)
        for step in range(3):
            moved = await policy.update(make_update(samples, step, **moving))
        after = await policy.update(still)
        assert after["loss"] < before["loss"] - 0.1
        assert 0 <= moved["clipped_share"] <= 1
        await policy.aclose()

    run(work())


def test_a_loaded_policy_continues_with_bitwise_equal_results(
    make_context, bundled, sampling, make_update, loss, optimizer, tmp_path: Path
) -> None:
    saved, ends = tmp_path / "checkpoint", [tmp_path / "a", tmp_path / "b"]
    for directory in (saved, *ends):
        directory.mkdir()

    async def step(policy, number: int):
        prompt = policy.render(bundled[0].messages)
        replies = await asyncio.gather(*(policy.sample(prompt, sampling(10 * number + i)) for i in range(4)))
        samples = learnt(prompt, replies, [1.0, -0.5, 0.2, -0.7])
        settings = {"loss": loss("ppo"), "optimizer": optimizer(1e-3, 1.0)}
        await policy.update(make_update(samples, number, denominator=20.0, substeps=2, **settings))
        return replies

    async def work() -> None:
        first = await started(make_context())
        for number in range(2):
            await step(first, number)
        state = await first.save(saved)
        replies = await step(first, 2)
        expected = await first.save(ends[0])
        other = await started(make_context("other", seed=9), attrs.evolve(SMALL, warm_start=None))
        await other.load(state, saved)
        assert await step(other, 2) == replies
        assert await other.save(ends[1]) == expected
        assert expected["weights_sha256"] != state["weights_sha256"]
        await first.aclose()
        await other.aclose()

    run(work())


def test_a_checkpoint_of_another_model_is_refused(make_context, tmp_path: Path) -> None:
    async def work() -> None:
        policy = await started(make_context(), attrs.evolve(SMALL, warm_start=None))
        state = await policy.save(tmp_path)
        wider = await started(make_context(), attrs.evolve(SMALL, warm_start=None, width=128))
        with pytest.raises(
            UsageError, match=r"is one from scratch \(width 64, .*; that of the recipe's policy is one .*\(width 128"
        ):
            await wider.load(state, tmp_path)
        (tmp_path / state["file"]).write_bytes(b"junk")
        with pytest.raises(KernelRLError, match="cannot read"):
            await policy.load(state, tmp_path)
        await policy.aclose()
        await wider.aclose()

    run(work())


def test_a_warm_start_is_cached_and_computed_again_if_damaged(make_context, bundled, sampling) -> None:
    async def reply(context, options=SMALL):
        policy = await started(context, options)
        try:
            return await policy.sample(policy.render(bundled[0].messages), sampling(3))
        finally:
            await policy.aclose()

    async def work() -> None:
        context = make_context()
        first = await reply(context)
        assert make_context.asked == 1
        assert await reply(context) == first
        assert make_context.asked == 1
        entries = list((context.cache_dir / "torch-warm-start").iterdir())
        assert len(entries) == 1
        content = entries[0] / "warm_start.pt"
        content.write_bytes(content.read_bytes()[:-100])
        assert await reply(context) == first
        assert make_context.asked == 2
        assert any("damaged" in line for line in make_context.said)
        assert await reply(context) == first
        assert make_context.asked == 2
        await reply(make_context("changed"))
        assert make_context.asked == 3

    run(work())


def test_concurrent_warm_starts_share_a_cache(make_context, bundled) -> None:
    async def work() -> None:
        policies = [TorchPolicy(SMALL) for _ in range(2)]
        await asyncio.gather(*(policy.start(make_context()) for policy in policies))
        third = await started(make_context())
        assert make_context.asked == 2
        for policy in (*policies, third):
            await policy.aclose()

    run(work())


def test_closing_the_policy_ends_a_warm_start(make_context) -> None:
    async def work() -> None:
        policy = TorchPolicy(attrs.evolve(SMALL, warm_start=WarmStart(steps=100_000)))
        starting = asyncio.create_task(policy.start(make_context()))
        await takes_async(0.5)
        await asyncio.wait_for(policy.aclose(), DEADLINE_S)
        with pytest.raises(InterruptedError):
            await starting

    run(work())


def test_a_warm_start_without_demonstrations_is_a_usage_error(make_context) -> None:
    async def work() -> None:
        policy = TorchPolicy(SMALL)
        with pytest.raises(UsageError, match="no demonstrations"):
            await policy.start(make_context(given=[]))
        await policy.aclose()

    run(work())


def test_the_fix_for_a_small_context_holds_for_all_demonstrations(make_context, bundled) -> None:
    async def work() -> None:
        policy = TorchPolicy(attrs.evolve(SMALL, context_tokens=16))
        with pytest.raises(UsageError) as raised:
            await policy.start(make_context(given=bundled))
        await policy.aclose()
        larger = TorchPolicy(attrs.evolve(SMALL, context_tokens=int(raised.value.fix.rpartition("=")[2])))
        await larger.start(make_context(given=bundled))
        await larger.aclose()

    run(work())


def test_a_prompt_that_leaves_too_little_for_the_reply_is_refused_before_the_warm_start(make_context, bundled) -> None:
    async def work() -> None:
        policy = TorchPolicy(SMALL)
        with pytest.raises(UsageError, match="300 or more for the reply"):
            await policy.start(attrs.evolve(make_context(given=bundled), reply_tokens=300))
        await policy.aclose()
        assert not make_context.said

    run(work())


def test_a_context_above_that_of_the_model_s_directory_is_a_problem(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 256}}')
    assert TorchConfig(model=str(tmp_path)).context_limit() == 256
    assert list(TorchConfig(model=str(tmp_path), context_tokens=300).problems()) == [
        f"context_tokens (300) exceeds the context of {tmp_path} (256)"
    ]
    assert not list(TorchConfig(model=str(tmp_path), context_tokens=256).problems())


def test_a_model_directory_that_does_not_exist_is_a_problem(tmp_path) -> None:
    assert list(TorchConfig(model="/nonexistent").problems()) == ["model: no such directory: /nonexistent"]
    assert not list(TorchConfig(model=str(tmp_path)).problems())
    assert not list(TorchConfig(model="Qwen/Qwen3-8B").problems())


def test_contradictory_options_are_listed() -> None:
    assert not list(SMALL.problems())
    assert len(list(TorchConfig(width=100, heads=3, vocabulary=10, lora_rank=4).problems())) == 3
    assert len(list(TorchConfig(model="x", lora_alpha=2.0).problems())) == 1


@pytest.mark.parametrize(("substeps", "train_tokens"), [(1, 300), (2, 300), (3, 8192)])
def test_a_streamed_step_equals_a_whole_step(
    make_context, bundled, sampling, make_update, loss, optimizer, substeps: int, train_tokens: int
) -> None:
    """The results are bitwise equal for any split, also with sampling in between."""

    async def work() -> None:
        whole, parted = [await started(make_context(), attrs.evolve(SMALL, train_tokens=train_tokens)) for _ in "ab"]
        prompts = [whole.render(example.messages) for example in bundled[:40:20]]
        replies = [[await whole.sample(prompt, sampling(seed)) for seed in range(5)] for prompt in prompts]
        samples = tuple(
            attrs.evolve(sample, id=f"{index}.{sample.id}")
            for index, (prompt, drawn) in enumerate(zip(prompts, replies, strict=True))
            for sample in learnt(prompt, drawn, (1.0, -0.5, 0.25, -1.0, 0.25))
        )
        for number in range(2):
            settings = {"loss": loss("ppo"), "optimizer": optimizer(max_grad_norm=0.5)}
            step = make_update(samples, number, denominator=400.0, substeps=substeps, **settings)
            first = step.substeps[0]
            cuts = ((0, 1), (1, 3), (3, len(first)))
            for begin, end in cuts:
                await parted.backward(first[begin:end], step.loss)
                assert await parted.sample(prompts[0], sampling(1)) == await whole.sample(prompts[0], sampling(1))
            streamed = attrs.evolve(step, accumulated=tuple(end - begin for begin, end in cuts))
            assert await parted.update(streamed) == await whole.update(step)
        drawn = [await policy.sample(prompts[1], sampling(9)) for policy in (whole, parted)]
        assert drawn[0] == drawn[1]
        assert drawn[0].logprobs != replies[1][0].logprobs
        await whole.aclose()
        await parted.aclose()

    run(work())


@pytest.mark.parametrize("trouble", ["a step is given up", "a pass fails", "an update fails"])
def test_gradients_of_a_failed_or_abandoned_step_are_discarded(
    make_context, bundled, sampling, make_update, monkeypatch, trouble: str
) -> None:
    """The next step is bitwise equal to that of a policy without failures."""

    async def work() -> None:
        # Every reply is its own batch.
        whole, troubled = [await started(make_context(), attrs.evolve(SMALL, train_tokens=1)) for _ in "ab"]
        prompt = whole.render(bundled[0].messages)
        replies = [await whole.sample(prompt, sampling(seed)) for seed in range(5)]
        step = make_update(learnt(prompt, replies, (1.0, -0.5, 0.25, -1.0, 0.25)))
        streamed, samples, learner = attrs.evolve(step, accumulated=(3, 1)), step.substeps[0], troubled._learner

        async def fails(work) -> None:
            whole_backward = learner.backward

            def backward(*arguments):
                whole_backward(*arguments)
                raise MemoryError("not enough memory for the gradients")

            with monkeypatch.context() as patch:
                patch.setattr(learner, "backward", backward)
                with pytest.raises(UsageError, match="not enough memory"):
                    await work

        if trouble == "a step is given up":
            await troubled.backward(samples[1:4], step.loss)
        await troubled.backward(samples[:3], step.loss)
        if trouble == "a pass fails":
            await fails(troubled.backward(samples[3:4], step.loss))
        else:
            await troubled.backward(samples[3:4], step.loss)
        if trouble == "an update fails":
            await fails(troubled.update(streamed))
        assert await troubled.update(streamed) == await whole.update(step)
        drawn = [await policy.sample(prompt, sampling(9)) for policy in (whole, troubled)]
        assert drawn[0] == drawn[1]
        await whole.aclose()
        await troubled.aclose()

    run(work())


def test_log_probabilities_are_those_of_the_requested_weights(
    make_context, bundled, sampling, make_update, optimizer
) -> None:
    async def work() -> None:
        policy = await started(attrs.evolve(make_context(), reference=True))
        prompt = policy.render(bundled[0].messages)
        samples = learnt(prompt, [await policy.sample(prompt, sampling(seed)) for seed in range(3)], (1.0, -1.0, 0.5))
        first = await policy.logprobs(samples, "current")
        assert first == await policy.logprobs(samples, "reference")
        for sample, row in zip(samples, first, strict=True):
            assert row == pytest.approx(sample.sampler_logprobs, abs=1e-4)
        await policy.update(make_update(samples, optimizer=optimizer(1e-3, 1.0)))
        assert await policy.logprobs(samples, "reference") == first
        assert await policy.logprobs(samples, "current") != first
        await policy.aclose()

    run(work())
