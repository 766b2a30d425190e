"""TRL's trainer with the episodes of a running server: its rollout calls the tool over OpenEnv's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Service, Services

from kernelrl_adapters.trl import service_environment

pytest.importorskip("kernelrl_service")
pytest.importorskip("openenv", reason="OpenEnv is not installed: pip install 'kernelrl-adapters[trl-service]'")

KERNEL = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"


@pytest.fixture
def service(fake_recipe: str, tmp_path: Path, command_server: CommandServer) -> Iterator[Service]:
    recipe = Path(fake_recipe)
    recipe.write_text(recipe.read_text() + "episode: {turns: 2, stop: correct}\n")
    with Services(command_server, tmp_path, "--evaluator", "fake", "--recipe", fake_recipe) as services:
        yield services.start()


def test_an_episode_has_a_prompt_turns_and_a_reward(service: Service) -> None:
    environment = service_environment(service.url, "fake")()
    assert "# train 2" in environment.reset(task="fake/train/2", prompt=[])
    assert environment.get_reward() == 0.0
    asyncio.run(environment.submit_kernel(KERNEL.format("wrong")))
    assert environment.get_reward() == 0.0
    asyncio.run(environment.submit_kernel(KERNEL.format("right")))
    assert environment.get_reward() == 0.7
    with pytest.raises(ValueError, match="has ended"):
        asyncio.run(environment.submit_kernel(KERNEL.format("right")))


def test_a_lost_evaluation_is_no_reward_and_is_not_shown(service: Service) -> None:
    environment = service_environment(service.url)()
    environment.reset()
    service.kill()
    assert asyncio.run(environment.submit_kernel(KERNEL.format("right"))) == "The episode has ended."
    assert environment.get_reward() is None


def test_the_rollout_of_trl_submits_kernels(service: Service, tokenizer: str, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: pip install 'kernelrl-adapters[trl]'")
    pytest.importorskip("jmespath", reason="TRL needs it for tools: pip install jmespath")
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    loaded.chat_template = qwen3_chat_template
    # As the template has it: TRL finds calls of tools in front of it.
    loaded.add_special_tokens({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})

    def call(answer: str) -> str:
        arguments = {"reply": KERNEL.format(answer)}
        return f"<tool_call>\n{json.dumps({'name': 'submit_kernel', 'arguments': arguments})}\n</tool_call>"

    class Scripted(LlamaForCausalLM):
        """Replies of its first call: a right and a wrong kernel; then a text, which ends the episode."""

        n_calls = 0

        def generate(self, input_ids: Any, **options: Any) -> Any:
            texts = [call("right"), call("wrong")] if not type(self).n_calls else ["Done."] * len(input_ids)
            type(self).n_calls += 1
            rows = [[*loaded.encode(text, add_special_tokens=False), loaded.eos_token_id] for text in texts]
            longest = max(map(len, rows))
            padded = [row + [loaded.pad_token_id] * (longest - len(row)) for row in rows]
            return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Scripted(LlamaConfig(vocab_size=len(loaded), max_position_embeddings=8192, **size))
    trainer = GRPOTrainer(
        model=model,
        processing_class=loaded,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], "task": "fake/train/1"}] * 2),
        environment_factory=service_environment(service.url, "fake"),
        args=GRPOConfig(
            output_dir=str(tmp_path / "trl"),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=4096,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        ),
    )
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "rewards/ServiceEnvironment/mean" in row]
    assert row["rewards/ServiceEnvironment/mean"] == pytest.approx(0.35)
    assert row["tools/call_frequency"] == 1.0
