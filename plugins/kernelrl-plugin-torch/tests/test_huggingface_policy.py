"""The policy with a tiny Hugging Face model that is created here."""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
from pathlib import Path

import pytest
import torch

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.policies import Message, TrainingSample
from kernelrl_plugin_torch import warm_start
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.policy import TorchPolicy

transformers = pytest.importorskip("transformers")

# Arguments that a later version of transformers no longer accepts.
pytestmark = pytest.mark.filterwarnings("error:.*past_key_values:FutureWarning")

MESSAGES = (Message("system", "Be brief."), Message("user", "Say abc."))


async def started(context, model_dir: Path, **options) -> TorchPolicy:
    policy = TorchPolicy(TorchConfig(model=str(model_dir), **options))
    await policy.start(context)
    return policy


def test_logprobs_equal_those_of_transformers(make_context, model_dir, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context(), model_dir)
        assert policy.context_tokens == 256
        prompts = [policy.render((*MESSAGES, Message("assistant", "x"), Message("user", "y" * n))) for n in (3, 9, 70)]
        replies = await asyncio.gather(
            *(policy.sample(prompt, sampling(seed, max_tokens=30)) for seed in range(4) for prompt in prompts)
        )
        net = transformers.AutoModelForCausalLM.from_pretrained(model_dir).eval()
        for prompt, reply in zip(prompts * 4, replies, strict=True):
            tokens = torch.tensor([[*prompt.tokens, *reply.tokens]])
            with torch.no_grad():
                distribution = net(tokens).logits[0, len(prompt.tokens) - 1 : -1].log_softmax(-1)
            expected = distribution.gather(1, torch.tensor(reply.tokens)[:, None])[:, 0].tolist()
            assert reply.logprobs == pytest.approx(expected, abs=1e-5)
        await policy.aclose()

    asyncio.run(work())


def test_prompts_are_rendered_by_the_models_template(make_context, model_dir) -> None:
    async def work() -> None:
        policy = await started(make_context(), model_dir)
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
        text = "<|system|>Be brief.<|end|><|user|>Say abc.<|end|><|assistant|>"
        assert tokenizer.decode(policy.render(MESSAGES).tokens) == text
        continued = policy.render((*MESSAGES, Message("assistant", "<think>")))
        assert tokenizer.decode(continued.tokens) == text + "<think>"
        await policy.aclose()

    asyncio.run(work())


def test_the_tiny_model_of_the_tutorial_samples_with_its_template(
    make_context, sampling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs/tutorials/own_model.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})

    async def work() -> None:
        policy = await started(make_context(), tmp_path / "tiny_model", lora_rank=8)
        prompt = policy.render(MESSAGES)
        text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay abc.<|im_end|>\n<|im_start|>assistant\n"
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tiny_model")
        assert tokenizer.decode(prompt.tokens) == text
        assert (await policy.sample(prompt, sampling(0, max_tokens=8))).tokens
        await policy.aclose()

    asyncio.run(work())


def test_a_sample_does_not_depend_on_its_batch(make_context, model_dir, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context(), model_dir)
        mine, other = policy.render(MESSAGES), policy.render((Message("user", "other"),))
        alone = await policy.sample(mine, sampling(7))
        crowd = [(other, sampling(seed)) for seed in range(40)]
        crowd.insert(23, (mine, sampling(7)))
        replies = await asyncio.gather(*(policy.sample(*pair) for pair in crowd))
        assert replies[23] == alone
        await policy.aclose()

    asyncio.run(work())


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_a_model_trains_saves_and_resumes(
    make_context, model_dir, sampling, make_update, loss, optimizer, tmp_path, lora_rank
) -> None:
    ends = [tmp_path / "saved", tmp_path / "a", tmp_path / "b"]
    for directory in ends:
        directory.mkdir()

    async def work() -> None:
        policy = await started(make_context(), model_dir, lora_rank=lora_rank)
        prompt = policy.render(MESSAGES)
        replies = [await policy.sample(prompt, sampling(seed, max_tokens=12)) for seed in (1, 2)]
        samples = tuple(
            TrainingSample(str(index), prompt.tokens, reply.tokens, reply.logprobs, advantage)
            for index, (reply, advantage) in enumerate(zip(replies, (1.0, -1.0), strict=True))
        )
        step = make_update(samples, denominator=10.0, loss=loss("ppo", 0.9, 5.0), optimizer=optimizer(5e-3, 1.0))
        before = await policy.update(step)
        assert abs(before["kl"]) < 1e-5
        for _ in range(3):
            await policy.update(step)
        state = await policy.save(ends[0])
        after = await policy.update(step)
        assert after["loss"] < before["loss"] - 0.02
        expected = await policy.save(ends[1])
        other = await started(make_context(), model_dir, lora_rank=lora_rank)
        await other.load(state, ends[0])
        assert await other.update(step) == after
        assert await other.save(ends[2]) == expected
        assert expected["weights_sha256"] != state["weights_sha256"]
        if lora_rank:
            saved = torch.load(ends[0] / state["file"], weights_only=True)["weights"]
            assert saved
            assert all("lora_" in name for name in saved)
        await policy.aclose()
        await other.aclose()

    asyncio.run(work())


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_transformers_and_peft_load_an_export_with_the_trained_weights(
    make_context, model_dir, sampling, make_update, loss, optimizer, tmp_path, lora_rank
) -> None:
    peft = pytest.importorskip("peft")

    async def trained() -> tuple[TrainingSample, list[float]]:
        policy = await started(make_context(), model_dir, lora_rank=lora_rank)
        prompt = policy.render(MESSAGES)
        reply = await policy.sample(prompt, sampling(1, max_tokens=12))
        sample = TrainingSample("0", prompt.tokens, reply.tokens, reply.logprobs, 1.0)
        step = make_update((sample,), denominator=10.0, loss=loss("ppo", 0.9, 5.0), optimizer=optimizer(5e-3, 1.0))
        await policy.update(step)
        await policy.export(tmp_path)
        (logprobs,) = await policy.logprobs([sample], "current")
        await policy.aclose()
        return sample, list(logprobs)

    sample, expected = asyncio.run(trained())
    assert max(abs(new - old) for new, old in zip(expected, sample.sampler_logprobs, strict=True)) > 0.01
    if lora_rank:
        net = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
        net = peft.PeftModel.from_pretrained(net, tmp_path)
    else:
        net = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
        template = transformers.AutoTokenizer.from_pretrained(model_dir).chat_template
        assert transformers.AutoTokenizer.from_pretrained(tmp_path).chat_template == template
    tokens = torch.tensor([[*sample.prompt_tokens, *sample.tokens]])
    with torch.no_grad():
        scores = net(input_ids=tokens).logits[0].log_softmax(-1)
    start = len(sample.prompt_tokens)
    found = [float(scores[start + i - 1, token]) for i, token in enumerate(sample.tokens)]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_a_write_that_fails_is_the_error_of_an_export(make_context, model_dir, tmp_path, lora_rank) -> None:
    pytest.importorskip("peft")

    async def work() -> None:
        policy = await started(make_context(), model_dir, lora_rank=lora_rank)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                await policy.export(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await policy.aclose()

    asyncio.run(work())


def test_a_warm_start_is_possible_and_cached(make_context, model_dir, bundled) -> None:
    async def work() -> None:
        given = [
            type(bundled[0])((Message("user", "hi"),), "yes", 1.0, "t", bundled[0].outcome),
        ]
        context = make_context(given=given)
        for _ in range(2):
            policy = await started(context, model_dir, warm_start=WarmStart(steps=3))
            await policy.aclose()
        assert make_context.asked == 1

    asyncio.run(work())


def test_a_template_that_adds_a_think_tag_has_a_prefill_and_gets_no_second_tag(
    make_context, model_dir, bundled, tmp_path
) -> None:
    """A warm start closes the thinking in demonstrations without thinking."""
    thinker = tmp_path / "thinker"
    shutil.copytree(model_dir, thinker)
    tokenizer = transformers.AutoTokenizer.from_pretrained(thinker)
    tokenizer.chat_template = tokenizer.chat_template.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")
    tokenizer.save_pretrained(thinker)
    asked = (Message("user", "hi"),)
    given = [
        type(bundled[0])(asked, text, 1.0, "t", bundled[0].outcome) for text in ("yes", "<think>\nhm\n</think>\nyes")
    ]

    async def work() -> None:
        policy = await started(make_context(given=given), thinker)
        assert policy.render(asked).opening == "<think>\n"
        assert policy.render((*asked, Message("assistant", "<think>\n"))).opening == "<think>\n"
        assert policy.render((*asked, Message("assistant", "<think>\n</think>"))).opening == ""
        corpus = warm_start._Corpus(policy._model, given)
        decoded = [tokenizer.decode(tokens) for tokens in corpus._replies[0]]
        assert decoded == ["\n</think>\n\nyes<|end|>", "hm\n</think>\nyes<|end|>"]
        await policy.aclose()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"model": "./nowhere"}, UsageError, "no such directory"),
        ({"context_tokens": 1000}, UsageError, "allows 256"),
        ({"lora_rank": 2, "lora_targets": ("nothing",)}, UsageError, "lora_targets"),
    ],
)
def test_invalid_options_are_refused(make_context, model_dir, options, error, words) -> None:
    async def work() -> None:
        policy = TorchPolicy(TorchConfig(**({"model": str(model_dir)} | options)))
        with pytest.raises(error, match=words):
            await policy.start(make_context())
        await policy.aclose()

    asyncio.run(work())


def test_a_directory_without_a_model_is_a_missing_prerequisite(make_context, tmp_path) -> None:
    async def work() -> None:
        policy = TorchPolicy(TorchConfig(model=str(tmp_path)))
        with pytest.raises(MissingPrerequisite, match="cannot load"):
            await policy.start(make_context())
        await policy.aclose()

    asyncio.run(work())


def test_a_damaged_file_of_weights_is_a_missing_prerequisite(make_context, model_dir, tmp_path) -> None:
    damaged = shutil.copytree(model_dir, tmp_path / "damaged")
    content = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(content[: len(content) // 2])

    async def work() -> None:
        policy = TorchPolicy(TorchConfig(model=str(damaged)))
        with pytest.raises(MissingPrerequisite, match=r"cannot load .* not fully covered"):
            await policy.start(make_context())
        await policy.aclose()

    asyncio.run(work())


def test_a_weight_that_is_nan_is_an_error_of_the_start(make_context, model_dir, tmp_path) -> None:
    net = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    broken = shutil.copytree(model_dir, tmp_path / "broken")
    with torch.no_grad():
        next(net.parameters())[:, 0] = float("nan")
    net.save_pretrained(broken)

    async def work() -> None:
        policy = TorchPolicy(TorchConfig(model=str(broken)))
        with pytest.raises(UsageError, match="computes NaN"):
            await policy.start(make_context())
        await policy.aclose()

    asyncio.run(work())


def test_weights_that_became_nan_end_sampling(make_context, model_dir, sampling) -> None:
    async def work() -> None:
        policy = await started(make_context(), model_dir)
        with torch.no_grad():
            next(policy._model.module.parameters())[:, 0] = float("nan")
        with pytest.raises(UsageError, match="computes NaN"):
            await policy.sample(policy.render(MESSAGES), sampling(0))
        await policy.aclose()

    asyncio.run(work())
