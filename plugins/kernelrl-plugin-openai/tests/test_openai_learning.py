"""The policy `openai` with a learner: a server on 127.0.0.1 samples with the adapters that the learner trained."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest

sys.path.append(str(Path(__file__).parents[3] / "tests/servers"))

pytest.importorskip("transformers")

import torch
import transformers
from kernelrl_openai_server import OpenAIServer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kernelrl_core.api.errors import KernelRLError
from kernelrl_core.api.policies import (
    Loss,
    Message,
    OptimizerSettings,
    PolicyContext,
    Reply,
    SamplingSettings,
    TrainingSample,
    Update,
)
from kernelrl_plugin_openai.config import OpenAIConfig
from kernelrl_plugin_openai.learning import LearningPolicy
from kernelrl_plugin_openai.policy import make_policy
from kernelrl_testing.core import shape_samples
from kernelrl_testing.waiting import DEADLINE_S

# Not imported here: peft takes seconds, in each process of pytest-xdist.
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
tasks:     {{use: fake}}
backend:   {{use: fake}}
policy:
  use: openai
  model: tiny
  base_url: "{url}"
  server: vllm
  api_key_env: null
  adapters: adapters
  learner: {{use: torch, model: "{model}", lora_rank: 2}}
evaluator: {{use: fake}}
feedback:  {{use: fake}}
forbid:    []
prompt:    {{template: brief, shots: zero}}
sampling:  {{max_tokens: 3}}
rewards:   {{correct: {{use: fake}}}}
train:     {{tasks_per_step: 1, group_size: 2, steps: 2, drop_uniform_groups: false}}
"""
ASK = (Message("user", "Say abc."),)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with one token per byte."""
    directory = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=text, eos_token="<|end|>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        num_key_value_heads=2,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **sizes,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    return directory


class Sampler:
    """A substitute for vLLM: loads an adapter from its files and samples from the adapted model."""

    def __init__(self, model: Path) -> None:
        self._model, self.tokenizer = model, transformers.AutoTokenizer.from_pretrained(model)
        self.server: OpenAIServer | None = None
        self._adapted: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any]) -> tuple[list[int], list[float], str]:
        import peft

        assert self.server is not None
        with self._lock:
            if body["model"] not in self._adapted:
                net = transformers.AutoModelForCausalLM.from_pretrained(self._model)
                loaded = peft.PeftModel.from_pretrained(net, self.server.adapters[body["model"]])
                self._adapted[body["model"]] = loaded.eval()
        adapted = self._adapted[body["model"]]
        generator = torch.Generator().manual_seed(body["seed"])
        tokens, logprobs = [], []
        with torch.no_grad():
            while len(tokens) < body["max_tokens"] and (not tokens or tokens[-1] != self.tokenizer.eos_token_id):
                logits = adapted(torch.tensor([body["prompt"] + tokens])).logits[0, -1]
                distribution = torch.log_softmax(logits, -1)
                token = int(torch.multinomial(distribution.exp(), 1, generator=generator))
                tokens.append(token)
                logprobs.append(float(distribution[token]))
        return tokens, logprobs, self.tokenizer.decode(tokens)


@pytest.fixture
def server(model: Path) -> Iterator[OpenAIServer]:
    sampler = Sampler(model)
    with OpenAIServer(lambda messages: "") as server:
        server.complete, sampler.server = sampler, server
        yield server


def options(server: OpenAIServer, model: Path, directory: Path) -> OpenAIConfig:
    learner = {"use": "torch", "model": str(model), "lora_rank": 4}
    more: dict[str, Any] = {"server": "vllm", "api_key_env": None, "patience_s": 0.5}
    return OpenAIConfig("tiny", base_url=server.url, learner=learner, adapters=directory / "adapters", **more)


def played(config: OpenAIConfig, play: Callable[[LearningPolicy], Any], tmp_path: Path) -> Any:
    async def go() -> Any:
        policy = make_policy(config)
        assert isinstance(policy, LearningPolicy)
        context = PolicyContext(0, tmp_path, None, demonstrations=None, demonstrations_key="", say=print)  # type: ignore[arg-type]
        try:
            await policy.start(context)
            return await play(policy)
        finally:
            await policy.aclose()

    return asyncio.run(go())


async def one_reply(policy: LearningPolicy, seed: int = 3) -> Reply:
    settings = SamplingSettings(max_tokens=12, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=seed)
    return await policy.sample(policy.render(ASK), settings)


def update_of(policy: LearningPolicy, replies: list[Reply]) -> Update:
    """An update with advantage 1 for the first reply and -1 for the others."""
    prompt = policy.render(ASK).tokens
    samples = tuple(
        TrainingSample(str(index), prompt, reply.tokens, reply.logprobs, -1.0 if index else 1.0)
        for index, reply in enumerate(replies)
    )
    shaped = shape_samples(samples, float(sum(len(reply.tokens) for reply in replies))).samples
    loss = Loss("importance_sampling", 0.2, 0.2)
    return Update(0, (shaped,), (), loss, OptimizerSettings(3e-2, 0.9, 0.95, 1e-8, 0.0, None))


def test_sampler_and_learner_agree_before_and_after_a_step(server: OpenAIServer, model: Path, tmp_path: Path) -> None:
    async def play(policy: LearningPolicy) -> list[dict[str, float]]:
        metrics = []
        for _ in range(2):
            replies = [await one_reply(policy, seed) for seed in range(2)]
            prompt = policy.render(ASK).tokens
            samples = [TrainingSample("0", prompt, reply.tokens, reply.logprobs, 1.0) for reply in replies]
            for reply, row in zip(replies, await policy.logprobs(samples, "current"), strict=True):
                assert row == pytest.approx(reply.logprobs, abs=1e-4)
            metrics.append(dict(await policy.update(update_of(policy, replies))))
        return metrics

    first, second = played(options(server, model, tmp_path), play, tmp_path)
    # Learner and sampler both compute in float32, so their ratio is 1 within its precision.
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert second["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert abs(second["kl"]) < 1e-4


def test_each_step_loads_new_adapters_and_unloads_the_old_ones(
    server: OpenAIServer, model: Path, tmp_path: Path
) -> None:
    async def play(policy: LearningPolicy) -> list[str]:
        names = []
        for _ in range(3):
            reply = await one_reply(policy)
            names.append(server.requests[-1]["model"])
            await policy.update(update_of(policy, [reply]))
        assert len(server.adapters) == 2
        return names

    names = played(options(server, model, tmp_path), play, tmp_path)
    assert len(set(names)) == 3
    assert server.adapters == {}
    assert list((tmp_path / "adapters").iterdir()) == []


@pytest.mark.parametrize("method", ["load", "begin_from"])
def test_a_loaded_checkpoint_samples_the_same_reply(
    server: OpenAIServer, model: Path, tmp_path: Path, method: str
) -> None:
    saved = tmp_path / "checkpoint"
    saved.mkdir()

    async def learn(policy: LearningPolicy) -> tuple[Reply, Any, Reply]:
        before = await one_reply(policy)
        for _ in range(3):
            await policy.update(update_of(policy, [await one_reply(policy, seed=8)]))
        return before, await policy.save(saved), await one_reply(policy)

    async def again(policy: LearningPolicy) -> Reply:
        await getattr(policy, method)(state, saved)
        return await one_reply(policy)

    before, state, after = played(options(server, model, tmp_path), learn, tmp_path)
    assert before.logprobs != after.logprobs
    assert played(options(server, model, tmp_path), again, tmp_path) == after


def test_a_run_from_the_command_line_samples_with_the_adapters_of_each_step(
    server: OpenAIServer, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(RECIPE.format(url=server.url, model=model))
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
    command += ["run", "small.yaml", "--name", "learnt"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    samples = [json.loads(line) for line in (tmp_path / "runs/learnt/samples.jsonl").read_text().splitlines()]
    assert len(samples) == 2 * 2
    assert all(len(row["reply"]["tokens"]) == len(row["reply"]["logprobs"]) > 0 for row in samples)
    # The probe and the first step use the first adapter, the second step uses the adapter of the first update.
    assert len({body["model"] for body in server.requests}) == 2
    assert server.adapters == {}


def test_a_prompt_is_sent_as_tokens_of_the_learner(server: OpenAIServer, model: Path, tmp_path: Path) -> None:
    played(options(server, model, tmp_path), one_reply, tmp_path)
    assert bytes(server.requests[-1]["prompt"]).decode("latin-1")  # one token per byte, in the alphabet's order
    assert len(server.requests[-1]["prompt"]) == len("user: Say abc.\nassistant: ")


def test_a_think_tag_of_the_chat_template_is_the_prefill(server: OpenAIServer, model: Path, tmp_path: Path) -> None:
    """The endpoint continues the learner's tokens, so its replies begin inside the thinking."""
    thinker = tmp_path / "thinker"
    shutil.copytree(model, thinker)
    tokenizer = transformers.AutoTokenizer.from_pretrained(thinker)
    tokenizer.chat_template += "{{ '<think>\n' }}"
    tokenizer.save_pretrained(thinker)

    async def play(policy: LearningPolicy) -> str:
        await one_reply(policy)
        return policy.render(ASK).prefill

    assert played(options(server, thinker, tmp_path), play, tmp_path) == "<think>\n"
    assert len(server.requests[-1]["prompt"]) == len("user: Say abc.\nassistant: <think>\n")


def test_a_server_without_adapter_support_is_refused_with_a_fix(
    server: OpenAIServer, model: Path, tmp_path: Path
) -> None:
    server.complete = None
    with pytest.raises(KernelRLError, match="does not load the adapters") as failure:
        played(options(server, model, tmp_path), one_reply, tmp_path)
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in failure.value.fix


def test_adapters_that_vllm_cannot_load_are_refused_at_once(server: OpenAIServer, model: Path, tmp_path: Path) -> None:
    """vLLM 0.33.0 responds 500, which elsewhere is retried for `patience_s`."""
    server.max_lora_rank = 3
    patient = attrs.evolve(options(server, model, tmp_path), patience_s=1e6)
    with pytest.raises(KernelRLError, match="rank 4 is greater than max_lora_rank 3") as failure:
        played(patient, one_reply, tmp_path)
    assert "--max-lora-rank at least" in failure.value.fix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": "compatible"}, "server: vllm"),
        ({"adapters": None}, "learner needs adapters"),
        ({"logprobs": False}, "learner needs logprobs"),
        ({"learner": {"use": "torch", "model": "m"}}, "set its lora_rank"),
        ({"learner": {"use": "torch", "lora_rnk": 3}}, "learner.lora_rnk: unknown key"),
        ({"learner": {"use": "tortch"}}, "tortch"),
        ({"learner": None}, "adapters has no effect without learner"),
    ],
)
def test_invalid_options_are_refused(changes: dict[str, Any], message: str) -> None:
    given = {"server": "vllm", "learner": {"use": "torch", "model": "m", "lora_rank": 4}, "adapters": Path("a")}
    problems = list(OpenAIConfig("tiny", **{**given, **changes}).problems())
    assert len(problems) == 1
    assert message in problems[0]
