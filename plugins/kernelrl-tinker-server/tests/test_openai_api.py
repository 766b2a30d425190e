"""Tinker's OpenAI-compatible inference, called by OpenAI's client."""

from __future__ import annotations

import re

import pytest
from tinker import types

openai = pytest.importorskip("openai")
MESSAGES = [{"role": "user", "content": "write a kernel"}]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.base_url}/oai/api/v1", api_key=server.api_key, max_retries=0) as made:
        yield made


def test_a_chat_reply_equals_the_one_of_tinkers_client(service, client) -> None:
    training = service.create_lora_training_client(base_model="tiny").result()
    path = training.save_weights_for_sampler("chat").result().path
    prompt = training.get_tokenizer().encode("<|user|>write a kernel<|end|><|assistant|>", add_special_tokens=False)
    params = types.SamplingParams(max_tokens=8, seed=3, temperature=1.0)
    sampler = training.create_sampling_client(path).result()
    expected = sampler.sample(types.ModelInput.from_ints(prompt), 1, params).result().sequences[0]
    for model in (path, f"tiny;{path}"):
        reply = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=8, seed=3, logprobs=True)
        (choice,) = reply.choices
        assert reply.usage.prompt_tokens == len(prompt)
        assert reply.usage.completion_tokens == len(expected.tokens)
        assert [row.logprob for row in choice.logprobs.content] == pytest.approx(expected.logprobs, abs=1e-6)
        assert choice.finish_reason == expected.stop_reason


def test_a_completion_continues_text_or_tokens(service, client) -> None:
    tokenizer = service.create_lora_training_client(base_model="tiny").result().get_tokenizer()
    replies = [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=6, seed=5, n=2, logprobs=0)
        for prompt in ("write", tokenizer.encode("write", add_special_tokens=False))
    ]
    texts = [[choice.text for choice in reply.choices] for reply in replies]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2
    assert len(replies[0].choices[0].logprobs.token_logprobs) == 6


def test_a_stop_text_ends_a_reply_and_is_not_part_of_it(client) -> None:
    options = {"model": "tiny", "prompt": "write", "max_tokens": 24, "seed": 5}
    free = client.completions.create(**options).choices[0].text
    cut = client.completions.create(**options, stop=free[4]).choices[0]
    assert cut.text == free[: free.index(free[4])]
    assert cut.finish_reason == "stop"


def test_a_streamed_reply_equals_the_whole_one(client) -> None:
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 6, "seed": 5}
    whole = client.chat.completions.create(**options).choices[0]
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices] == [None, whole.finish_reason]
    assert chunks[-1].usage.completion_tokens == 6


def test_the_served_models_are_listed(server, client) -> None:
    assert [model.id for model in client.models.list()] == list(server.models)


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"model": "tinny"}, "NotFoundError", "did you mean 'tiny'"),
        ({"model": "tinker://run/weights"}, "BadRequestError", "is not a checkpoint path"),
        ({"messages": []}, "BadRequestError", "messages is empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "BadRequestError", "role 'tool'.*\nfix: use system"),
        ({"tools": [{"type": "function"}]}, "BadRequestError", "does not support tools\nfix: send the request without"),
        ({"temperature": -1}, "BadRequestError", "temperature cannot be -1"),
        (
            {"messages": [{"role": "user", "content": "x" * 3000}]},
            "BadRequestError",
            "the model's context has 2048\nfix:",
        ),
        ({"messages": "hello"}, "UnprocessableEntityError", "unexpected structure"),
    ],
)
def test_a_request_that_cannot_be_served_is_one_clear_error(client, changes, error, problem) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        client.chat.completions.create(**({"model": "tiny", "messages": MESSAGES, "max_tokens": 4} | changes))
    message = raised.value.body["message"]
    assert re.search(problem, message), message
