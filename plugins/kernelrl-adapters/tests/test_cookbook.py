"""The environment in tinker-cookbook: single steps, the cookbook's rollouts, and its unmodified training loop."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook")

import tinker
from tinker_cookbook import tokenizer_utils
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl import rollouts
from tinker_cookbook.rl.types import InitialObservationOverflow

from kernelrl_adapters.chat import CHAT_TEMPLATE, ChatRenderer
from kernelrl_adapters.cookbook import KernelDatasetBuilder
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, Prompt
from kernelrl_testing.core import extract

RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
prompt:    {template: brief, shots: zero}
sampling:  {max_tokens: 200}
rewards:   {correct: {use: fake, weight: 0.7}}
train:     {tasks_per_step: 2, group_size: 3, steps: 3}
eval:      {samples: 2}
"""
ANSWER = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"


@pytest.fixture
def builder(tmp_path: Path, tokenizer: str) -> Callable[..., KernelDatasetBuilder]:
    (tmp_path / "small.yaml").write_text(RECIPE)

    def make(*overrides: str, **options: Any) -> KernelDatasetBuilder:
        given = {"model_name": tokenizer, "renderer_name": "role_colon", "context_tokens": 4000, **options}
        return KernelDatasetBuilder(recipe=str(tmp_path / "small.yaml"), overrides=overrides, **given)

    return make


class Scripted(TokenCompleter):
    """Completes a prompt by a function of its text."""

    def __init__(self, chat: ChatRenderer, write_reply: Callable[[str], str]) -> None:
        self._tokenizer, self._write_reply = chat.load_tokenizer(), write_reply

    async def __call__(self, model_input: tinker.ModelInput, stop: Any) -> TokensWithLogprobs:
        text = self._write_reply(self._tokenizer.decode(model_input.to_ints()))
        tokens = self._tokenizer.encode(text + "\n\nUser:", add_special_tokens=False)
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-0.5] * len(tokens))


def rolled_out(builder: KernelDatasetBuilder, write_reply: Callable[[str], str], *, test: bool = False) -> Any:
    """The cookbook's trajectories of the first group of the first batch."""

    async def go() -> Any:
        train, held_out = await builder()
        dataset = held_out if test and held_out else train
        group = pickle.loads(pickle.dumps(dataset.get_batch(0)[0]))
        return await rollouts.do_group_rollout(group, Scripted(dataset.speech, write_reply))

    return asyncio.run(go())


def test_batches_and_groups_are_those_of_the_recipe(builder: Callable[..., KernelDatasetBuilder]) -> None:
    train, held_out = asyncio.run(builder()())
    assert len(train) == 3
    assert [len(train.get_batch(step)) for step in range(3)] == [2, 2, 2]
    assert {group.attempts for group in train.get_batch(0)} == {3}
    # Two steps with two tasks each use each of the split's four tasks once.
    assert len({group.task.id for step in range(2) for group in train.get_batch(step)}) == 4
    assert held_out is not None
    assert [group.task.id for group in held_out.get_batch(0)] == [f"fake/held_out/{number}" for number in range(4)]
    assert asyncio.run(builder(test=False)())[1] is None


def test_the_reward_of_a_step_is_the_score_of_its_turn(builder: Callable[..., KernelDatasetBuilder]) -> None:
    group = rolled_out(builder(), lambda prompt: ANSWER.format("right"))
    assert len(group.trajectories_G) == 3
    assert group.get_total_rewards() == [0.7, 0.7, 0.7]
    step = group.trajectories_G[0].transitions[0]
    assert (step.metrics["correct"], step.metrics["speedup"], step.episode_done) == (1.0, 1.5, True)
    assert step.logs["outcome"] == "correct"


def test_later_prompts_contain_feedback_and_the_recipe_ends_the_episode(
    builder: Callable[..., KernelDatasetBuilder],
) -> None:
    prompts: list[str] = []

    def write_reply(prompt: str) -> str:
        prompts.append(prompt)
        return ANSWER.format("right" if "the values differ" in prompt else "wrong")

    group = rolled_out(builder("episode.turns=4", "episode.stop=correct"), write_reply)
    for trajectory in group.trajectories_G:
        assert [step.reward for step in trajectory.transitions] == [0.0, 0.7]
        assert [step.episode_done for step in trajectory.transitions] == [False, True]
    second = [prompt for prompt in prompts if "the values differ" in prompt]
    assert (len(prompts), len(second)) == (6, 3)
    assert all("return 'wrong'" in prompt for prompt in second)


def test_the_test_set_is_the_held_out_split(builder: Callable[..., KernelDatasetBuilder]) -> None:
    group = rolled_out(builder(), lambda prompt: ANSWER.format("right"), test=True)
    assert len(group.trajectories_G) == 2


def test_a_reply_cut_at_the_token_limit_is_a_format_error(builder: Callable[..., KernelDatasetBuilder]) -> None:
    async def go() -> Any:
        train, _ = await builder()()
        group = train.get_batch(0)[0]
        env = (await group.make_envs())[0]
        await env.initial_observation()
        tokens = Scripted(train.speech, str)._tokenizer.encode(ANSWER.format("right")[:-3])
        result = await env.step(tokens, extra={"stop_reason": "length"})
        await group.cleanup()
        return result

    result = asyncio.run(go())
    assert result.reward == 0.0
    assert result.logs["outcome"] == "format_error"


def test_a_prompt_too_long_for_a_reply_is_an_overflow_and_not_an_error(
    builder: Callable[..., KernelDatasetBuilder],
) -> None:
    async def go() -> Any:
        train, _ = await builder("sampling.max_tokens=2000", context_tokens=2100)()
        group = train.get_batch(0)[0]
        found = await (await group.make_envs())[0].initial_observation()
        await group.cleanup()
        return found

    assert isinstance(asyncio.run(go()), InitialObservationOverflow)


def test_a_next_prompt_too_long_for_a_reply_ends_the_episode_and_keeps_its_reward(
    builder: Callable[..., KernelDatasetBuilder],
) -> None:
    first = len(rolled_out(builder(), lambda prompt: "").trajectories_G[0].transitions[0].ob.to_ints())
    long = "\n" + "# " * 100
    small = builder("episode.turns=3", "sampling.max_tokens=1000", context_tokens=first + 1000 + 150)
    group = rolled_out(small, lambda prompt: ANSWER.format("right").replace("\nclass", long + "\nclass", 1))
    steps = group.trajectories_G[0].transitions
    assert [step.reward for step in steps] == [0.7]
    assert steps[-1].metrics["stop/max_tokens"] == 1.0


def test_all_groups_share_one_environment_that_is_closed_with_the_event_loop(
    builder: Callable[..., KernelDatasetBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernelrl_fake

    closed: list[Any] = []

    async def close(self: Any) -> None:
        closed.append(self)

    async def go() -> None:
        train, _ = await builder()()
        for step in range(2):
            for group in train.get_batch(step):
                completer = Scripted(train.speech, lambda prompt: ANSWER.format("right"))
                await rollouts.do_group_rollout(group, completer)
        assert closed == []

    monkeypatch.setattr(kernelrl_fake.Evaluator, "aclose", close)
    asyncio.run(go())
    assert len(closed) == 1


def test_episodes_lost_to_infrastructure_errors_are_retried_by_the_cookbook_s_strategy(
    builder: Callable[..., KernelDatasetBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernelrl_fake
    from tinker_cookbook.rl.rollout_strategy import RetryOnFailure

    from kernelrl_core.api.errors import InfrastructureError

    whole, calls = kernelrl_fake.Evaluator.evaluate, []

    async def broken_at_first(self: Any, request: Any) -> Any:
        calls.append(request)
        if len(calls) <= 3:  # the number of tries of the core
            raise InfrastructureError("the judge is gone")
        return await whole(self, request)

    async def go() -> Any:
        train, _ = await builder()()
        completer = Scripted(train.speech, lambda prompt: ANSWER.format("right"))
        return await rollouts.do_group_rollout(train.get_batch(0)[0], completer, strategy=RetryOnFailure(max_retries=3))

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", broken_at_first)
    group = asyncio.run(go())
    assert group.get_total_rewards() == [0.7, 0.7, 0.7]
    assert group.rollout_errors


def test_an_infrastructure_error_fails_the_rollout_and_gives_no_reward(
    builder: Callable[..., KernelDatasetBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernelrl_fake

    from kernelrl_core.api.errors import EvaluationError, InfrastructureError

    async def broken(self: Any, request: Any) -> Any:
        raise InfrastructureError("the judge is gone")

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", broken)
    with pytest.raises(EvaluationError, match="the judge is gone"):
        rolled_out(builder(), lambda prompt: ANSWER.format("right"))


def test_a_model_without_a_recommended_renderer_needs_renderer_name(
    builder: Callable[..., KernelDatasetBuilder],
) -> None:
    with pytest.raises(UsageError, match="recommends no renderer") as failure:
        asyncio.run(builder(renderer_name=None)())
    assert "renderer_name" in failure.value.fix


def test_kept_thinking_is_refused_if_the_renderer_removes_it(
    builder: Callable[..., KernelDatasetBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("history.thinking=kept", "episode.turns=2")
    asyncio.run(builder(*kept)())
    monkeypatch.setattr(ChatRenderer, "render", lambda chat, messages: Prompt(tuple(messages), (1, 2)))
    with pytest.raises(UsageError, match=r"history\.thinking=kept"):
        asyncio.run(builder(*kept)())


def test_a_final_assistant_message_is_a_prefill(tokenizer: str) -> None:
    chat = ChatRenderer(tokenizer, "role_colon", 1000)
    messages = (Message("user", "Write."),)
    plain = chat.render(messages).tokens
    opened = chat.render((*messages, Message("assistant", "<think>\n"))).tokens
    assert opened[: len(plain)] == plain
    assert len(opened) - len(plain) == len("<think>\n")


def test_the_unmodified_training_loop_runs_on_a_local_server(
    builder: Callable[..., KernelDatasetBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = pytest.importorskip("kernelrl_tinker_server.local")
    from tinker_cookbook.rl import train

    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with local.LocalServer(state=tmp_path / "server") as server:
        monkeypatch.setenv("TINKER_API_KEY", server.api_key)
        model = server.models[0]
        config = train.Config(
            learning_rate=1e-3,
            dataset_builder=builder("episode.turns=2", "sampling.max_tokens=8", model_name=model, context_tokens=2000),
            model_name=model,
            recipe_name="kernelrl",
            max_tokens=8,
            log_path=str(tmp_path / "run"),
            eval_every=2,
            save_every=0,
            base_url=server.base_url,
            max_steps=2,
        )
        asyncio.run(train.main(config))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "env/all/reward/total" in row]
    assert len(trained) == 2
    assert {row["env/all/correct"] for row in trained} == {0.0}
    assert any("test/env/all/reward/total" in row for row in rows)
    assert (tmp_path / "run/checkpoints.jsonl").read_text()


# --- chat formats ---------------------------------------------------------------------------------------------------


def reply_of(chat: ChatRenderer, text: str) -> Any:
    tokens = chat.load_tokenizer().encode(text, add_special_tokens=False)
    return chat.reply(chat.render((Message("user", "Write."),)), tokens, cut=False)


def test_the_end_of_turn_is_not_part_of_the_reply(tokenizer: str) -> None:
    reply = reply_of(ChatRenderer(tokenizer, "role_colon", 1000), "Done.\n\nUser:")
    assert (reply.text, reply.stop_reason) == ("Done.", "stop")
    # Without an end of turn, although `cut` is false.
    assert reply_of(ChatRenderer(tokenizer, "role_colon", 1000), "Done.").stop_reason == "length"


def test_the_tokenizer_s_own_chat_template_renders_models_unknown_to_the_cookbook(tokenizer: str) -> None:
    chat = ChatRenderer(tokenizer, CHAT_TEMPLATE, 1000)
    loaded = chat.load_tokenizer()
    loaded.chat_template = "{% for m in messages %}{{ m['role'] }}={{ m['content'] }};{% endfor %}assistant="
    messages = (Message("system", "s"), Message("user", "u"))
    assert loaded.decode(chat.render(messages).tokens) == "system=s;user=u;assistant="
    opened = chat.render((*messages, Message("assistant", "<think>\n")))
    assert loaded.decode(opened.tokens) == "system=s;user=u;assistant=<think>\n"
    assert chat.stops() == [loaded.eos_token_id]
    ended = chat.reply(opened, [*loaded.encode("Done."), loaded.eos_token_id], cut=False)
    assert (ended.text, ended.stop_reason) == ("Done.", "stop")
    assert chat.reply(opened, loaded.encode("Do"), cut=True).stop_reason == "length"


def test_thinking_parts_are_in_the_text_and_in_their_own_field(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinker_cookbook.renderers import ParseTermination

    from kernelrl_adapters import chat as module

    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Done."}]

    class Thinking:
        def build_generation_prompt(self, messages: Any) -> tinker.ModelInput:
            return tinker.ModelInput.from_ints([1])

        def parse_response(self, tokens: list[int]) -> Any:
            return {"role": "assistant", "content": parts}, ParseTermination.STOP_SEQUENCE

    monkeypatch.setattr(module, "_renderer", lambda chat: Thinking())
    reply = reply_of(ChatRenderer(tokenizer, "thinks", 1000), "anything")
    assert (reply.text, reply.thinking) == ("<think>\nHm.\n</think>\n\nDone.", "Hm.")


def test_a_renderer_that_adds_a_think_tag_gets_no_second_one(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelrl_adapters import chat as module

    chat = ChatRenderer(tokenizer, "thinks", 1000)
    prompt_tokens = chat.load_tokenizer().encode("user: u assistant: <think>\n", add_special_tokens=False)

    class Opens:
        def build_generation_prompt(self, messages: Any, prefill: str = "") -> tinker.ModelInput:
            assert not prefill
            return tinker.ModelInput.from_ints(prompt_tokens)

    monkeypatch.setattr(module, "_renderer", lambda chat: Opens())
    prompt = chat.render((Message("user", "u"), Message("assistant", "<think>\n")))
    assert prompt.tokens == tuple(prompt_tokens)


@pytest.mark.parametrize("pushed", [False, True], ids=["", "think_prefix"])
@pytest.mark.parametrize("renderer", [CHAT_TEMPLATE, "qwen3_5", "role_colon"])
def test_thinking_started_by_the_prompt_ends_only_at_the_closing_tag(
    tokenizer: str, renderer: str, pushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelrl_adapters import chat as module

    loaded = tokenizer_utils.get_tokenizer(tokenizer)
    loaded.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]})
    loaded.chat_template = "{% for m in messages %}{{ m['content'] }};{% endfor %}assistant: {{ '<think>\n' }}"
    monkeypatch.setattr(module, "_tokenizer", lambda name: loaded)
    module._renderer.cache_clear()
    chat = ChatRenderer(tokenizer, renderer, 1000)
    prompt = chat.render((Message("user", "Write."), *([Message("assistant", "<think>\n")] if pushed else [])))
    assert prompt.opening == ("<think>\n" if pushed or renderer != "role_colon" else "")
    opening = "" if prompt.opening else "<think>\n"
    ends = [end if isinstance(end, str) else loaded.decode([end]) for end in chat.stops()]
    draft, answer = ANSWER.format("draft"), ANSWER.format("answer")

    def read(text: str, *, cut: bool = False) -> Any:
        reply = chat.reply(prompt, loaded.encode(opening + text, add_special_tokens=False), cut=cut)
        return extract(prompt.prefill + reply.text, backend="cuda", thinking=reply.thinking)

    assert read(f"First\n{draft}\nand then", cut=True).candidate is None
    assert read(f"First\n{draft}\nand then{ends[0]}").candidate is None
    assert "'answer'" in read(f"First\n{draft}\n</think>\n\n{answer}\n{ends[0]}").candidate.source
    assert read(f"\n</think>\n\n{answer}\n{ends[0]}").candidate is not None
    module._renderer.cache_clear()
