"""Sampling with a static cache, on the CPU; on a GPU the same steps are recorded into graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelrl_core.api.policies import Reply, SamplingSettings
from kernelrl_plugin_torch import static_decoder
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.language_model import PromptAndReply
from kernelrl_plugin_torch.sampler import Request, Sampler

transformers = pytest.importorskip("transformers")

from kernelrl_plugin_torch.huggingface import HuggingFaceModel  # noqa: E402

# Arguments that a later version of transformers no longer accepts.
pytestmark = pytest.mark.filterwarnings("error:.*past_key_values:FutureWarning")

PROMPTS = [tuple(5 + (7 * place + row) % 250 for place in range(3 + 4 * row)) for row in range(7)]


@pytest.fixture
def make_model(model_dir: Path, monkeypatch: pytest.MonkeyPatch):
    def make(**options) -> HuggingFaceModel:
        model = HuggingFaceModel(TorchConfig(model=str(model_dir), **options), seed=0)
        model._use_static_cache(True)
        model.stop_tokens = frozenset()
        return model

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Rows of these prompts need several lengths of the cache.
    monkeypatch.setattr(static_decoder, "_POSITIONS", 16)
    yield make
    torch.set_num_threads(threads)


def sampled(model: HuggingFaceModel, settings: list[SamplingSettings], rows: int) -> list[Reply]:
    """The replies to PROMPTS, in their order."""
    sampler = Sampler(model, rows)
    replies: dict[int, Reply] = {}

    def fail(error: BaseException) -> None:
        raise error

    for index, (prompt, one) in enumerate(zip(PROMPTS, settings, strict=True)):

        def deliver(reply: Reply, index: int = index) -> None:
            replies[index] = reply

        sampler.submit(Request(prompt, one, deliver, fail, lambda: True))
    sampler.run()
    return [replies[index] for index in range(len(PROMPTS))]


@pytest.mark.parametrize("rows", [3, 16])
def test_greedy_replies_equal_those_of_transformers(make_model, sampling, rows: int) -> None:
    """With fewer rows than requests, replies start in rows in which others have ended."""
    model = make_model()
    settings = [sampling(temperature=0.0, max_tokens=4 + 3 * row) for row in range(len(PROMPTS))]
    for prompt, one, reply in zip(PROMPTS, settings, sampled(model, settings, rows), strict=True):
        expected = model.module.generate(
            torch.tensor([prompt]), max_new_tokens=one.max_tokens, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert list(reply.tokens) == expected[0, len(prompt) :].tolist()


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_log_probabilities_equal_those_of_the_learner(make_model, sampling, lora_rank) -> None:
    model = make_model(lora_rank=lora_rank)
    if lora_rank is not None:
        torch.manual_seed(1)
        for name, tensor in model.state().items():  # LoRA starts with adapters that change nothing
            tensor.copy_(torch.randn(tensor.shape) * 0.1 if "lora_B" in name else tensor)
    replies = sampled(model, [sampling(seed, max_tokens=20) for seed in range(len(PROMPTS))], 4)
    with torch.no_grad():
        scores = model.score([PromptAndReply(p, reply.tokens) for p, reply in zip(PROMPTS, replies, strict=True)])
    found = [logprob for reply in replies for logprob in reply.logprobs]
    assert found == pytest.approx(scores.logprobs.tolist(), abs=1e-5)


def test_replies_after_a_change_of_the_weights_are_those_of_the_new_weights(make_model, sampling) -> None:
    model = make_model()
    settings = [sampling(temperature=0.0, max_tokens=12)] * len(PROMPTS)
    before = sampled(model, settings, 4)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    after = sampled(model, settings, 4)
    assert [reply.tokens for reply in after] != [reply.tokens for reply in before]
    fresh = make_model()
    fresh.load_state(model.state())
    assert sampled(fresh, settings, 4) == after


def test_a_model_with_a_sliding_window_keeps_the_other_decoder(model_dir: Path) -> None:
    net = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    assert static_decoder.supports_static_cache(net)
    net.config.sliding_window = 4
    assert not static_decoder.supports_static_cache(net)


def test_other_work_may_use_the_device_before_every_token(make_model, sampling) -> None:
    given: list[None] = []
    sampler = Sampler(make_model(), 3)
    sampler.give_way = lambda: given.append(None)
    replies: list[Reply] = []

    def fail(error: BaseException) -> None:
        raise error

    settings = sampling(temperature=0.0, max_tokens=9)
    sampler.submit(Request(PROMPTS[0], settings, replies.append, fail, lambda: True))
    sampler.run()
    assert len(given) >= len(replies[0].tokens) == 9
