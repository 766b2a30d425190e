"""Reward function and rows for TRL: alone, and in its unmodified `GRPOTrainer`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelrl_adapters.trl import kernel_reward, prompt_rows
from kernelrl_core.api.errors import InfrastructureError, LookupFailed, UsageError

ANSWER = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"
RIGHT, WRONG = ANSWER.format("right"), ANSWER.format("wrong")


def spoken(text: str, **more: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text, **more}]


def test_rows_have_the_prompts_and_tasks_of_the_recipe(fake_recipe: str) -> None:
    rows = prompt_rows(fake_recipe)
    assert [row["task"] for row in rows] == [f"fake/train/{number}" for number in range(4)]
    assert all("# train" in row["prompt"][-1]["content"] for row in rows)
    assert {message["role"] for row in rows for message in row["prompt"]} <= {"system", "user"}
    assert [row["task"] for row in prompt_rows(fake_recipe, ["eval.max_tasks=1"], held_out=True)] == ["fake/held_out/0"]


def test_rewards_are_the_scores_of_the_completions(fake_recipe: str) -> None:
    reward = kernel_reward(fake_recipe)
    tasks, prompts = [f"fake/train/{number}" for number in range(3)], [""] * 3
    assert reward(prompts, [RIGHT, WRONG, "no code"], task=tasks, other=[1, 2, 3]) == [0.7, 0.0, 0.0]
    assert reward(prompts, [spoken(RIGHT), spoken(WRONG), []], task=tasks) == [0.7, 0.0, 0.0]


def test_a_draft_in_separated_thinking_is_not_read(fake_recipe: str) -> None:
    completions = [spoken("Done.", reasoning_content=RIGHT), spoken(RIGHT, reasoning_content=WRONG)]
    assert kernel_reward(fake_recipe)(["", ""], completions, task=["fake/train/0"] * 2) == [0.0, 0.7]


def test_the_reply_continues_the_prefill(fake_recipe: str) -> None:
    recipe = (fake_recipe, ["prompt.think_prefix=true"])
    (*_, last) = prompt_rows(*recipe)[0]["prompt"]
    assert last["role"] == "assistant"
    rewards = kernel_reward(*recipe)(["", ""], [RIGHT, f"</think>{RIGHT}"], task=["fake/train/0"] * 2)
    assert rewards == [0.0, 0.7]


def test_metrics_and_outcomes_are_logged(fake_recipe: str) -> None:
    metrics: dict[str, float] = {}
    columns: dict[str, Sequence[str]] = {}
    kernel_reward(fake_recipe)(
        ["", ""],
        [RIGHT, WRONG],
        task=["fake/train/0"] * 2,
        log_metric=metrics.__setitem__,
        log_extra=columns.__setitem__,
    )
    assert columns == {"outcome": ["correct", "incorrect"]}
    assert metrics["kernelrl/correct"] == 0.5
    assert metrics["kernelrl/speedup"] == 1.5
    assert metrics["kernelrl/reward/correct"] == pytest.approx(0.35)


def test_an_infrastructure_error_is_no_reward(fake_recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelrl_fake

    first = kernelrl_fake.Evaluator.evaluate

    async def evaluate(self: Any, request: Any) -> Any:
        if "wrong" in request.source:
            raise InfrastructureError("planted")
        return await first(self, request)

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)
    reward = kernel_reward(fake_recipe, ["evaluation.trials=3"])
    assert reward(["", ""], [RIGHT, WRONG], task=["fake/train/0"] * 2) == [0.7, None]


def test_mistakes_have_a_message(fake_recipe: str) -> None:
    with pytest.raises(UsageError, match="no recipe"):
        kernel_reward("nowhere")
    with pytest.raises(LookupFailed, match="did you mean 'fake/train/3'"):
        kernel_reward(fake_recipe)([""], [RIGHT], task=["fake/tran/3"])


def test_the_trainer_of_trl_learns_from_the_rewards(fake_recipe: str, tokenizer: str, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: pip install 'kernelrl-adapters[trl]'")
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    assert {"reward_funcs", "train_dataset"} <= inspect.signature(GRPOTrainer).parameters.keys()
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    loaded.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    loaded.pad_token = loaded.eos_token
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(loaded), max_position_embeddings=4096, **size))
    recipe = (fake_recipe, ["rewards.correct.of_text=true", "tasks.use=fake"])
    trainer = GRPOTrainer(
        model=model,
        processing_class=loaded,
        reward_funcs=kernel_reward(*recipe),
        train_dataset=Dataset.from_list(prompt_rows(*recipe)),
        args=GRPOConfig(
            output_dir=str(tmp_path / "trl"),
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            learning_rate=1e-2,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        ),
    )
    before = model.lm_head.weight.detach().clone()
    trainer.train()
    rows = [row for row in trainer.state.log_history if "rewards/kernelrl/mean" in row]
    assert len(rows) == 2
    assert all(0.0 < row["rewards/kernelrl/mean"] < 0.7 for row in rows)
    assert {row["kernelrl/correct"] for row in rows} == {0.0}
    assert not before.equal(model.lm_head.weight)
