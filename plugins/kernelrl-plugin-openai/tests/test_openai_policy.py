"""The policy `openai` against a server on 127.0.0.1, over real HTTP."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[3] / "tests/servers"))

from kernelrl_openai_server import LOGPROB, OpenAIServer

from kernelrl_core.api.errors import ExitCode, InfrastructureError, KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.api.policies import Message, PolicyContext, Reply, SamplingSettings, TrainablePolicy
from kernelrl_plugin_openai import endpoint
from kernelrl_plugin_openai.config import OpenAIConfig
from kernelrl_plugin_openai.endpoint import UNREADABLE, IncompleteResponse
from kernelrl_plugin_openai.policy import UNKNOWN_TOKEN, OpenAIPolicy
from kernelrl_testing.contracts import PolicyContract
from kernelrl_testing.waiting import DEADLINE_S, takes, takes_async

KEY = "sk-very-secret-0123456789"
SETTINGS = SamplingSettings(max_tokens=100, temperature=0.7, top_p=0.9, top_k=-1, stop=("END",), seed=7)
ASK = (Message("system", "Be short."), Message("user", "Write a kernel."))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda messages: f"a reply to {messages[-1]['content']}", key=KEY) as server:
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(endpoint, "_FIRST_WAIT_S", 0.02)


def options(running: OpenAIServer, **more: Any) -> OpenAIConfig:
    return OpenAIConfig(**{"model": "tiny", "base_url": running.url, "patience_s": 0.5, **more})


def started(config: OpenAIConfig, then: Callable[[OpenAIPolicy], Any] | None = None) -> Any:
    """The result of `then` for a started policy, or the policy."""

    async def go() -> Any:
        policy = OpenAIPolicy(config)
        try:
            await policy.start(context())
            return await then(policy) if then is not None else policy
        finally:
            await policy.aclose()

    return asyncio.run(go())


def context() -> PolicyContext:
    return PolicyContext(0, Path(), None, demonstrations=None, demonstrations_key="", say=print)  # type: ignore[arg-type]


async def one_reply(policy: OpenAIPolicy) -> Reply:
    return await policy.sample(policy.render(ASK), SETTINGS)


class TestContract(PolicyContract):
    component = "openai"

    @pytest.fixture(autouse=True)
    def _served(self, server: OpenAIServer) -> None:
        self.options = {"model": "tiny", "base_url": server.url, "context_tokens": 4096}


# --- a reply --------------------------------------------------------------------------------------------------------


def test_a_reply_has_its_text_and_one_log_probability_per_token(server: OpenAIServer) -> None:
    reply = started(options(server), one_reply)
    assert reply.text == "a reply to Write a kernel."
    assert reply.logprobs == (LOGPROB,) * 6
    assert reply.tokens == (UNKNOWN_TOKEN,) * 6
    assert reply.stop_reason == "stop"


def test_the_request_has_all_sampling_settings(server: OpenAIServer) -> None:
    started(options(server, extra_body={"reasoning_effort": "low"}), one_reply)
    assert server.requests[-1] == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Write a kernel."},
        ],
        "max_tokens": 100,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END"],
        "logprobs": True,
        "reasoning_effort": "low",
    }


def test_openai_s_own_service_gets_max_completion_tokens(server: OpenAIServer) -> None:
    started(options(server, server="openai"), one_reply)
    assert server.requests[-1]["max_completion_tokens"] == 100
    assert "max_tokens" not in server.requests[-1]


def test_vllm_returns_token_ids_and_accepts_top_k_and_a_prefill(server: OpenAIServer) -> None:
    async def ask(policy: OpenAIPolicy) -> Reply:
        prompt = policy.render((*ASK, Message("assistant", "<think>\n")))
        return await policy.sample(prompt, attrs.evolve(SETTINGS, top_k=5))

    reply = started(options(server, server="vllm"), ask)
    assert reply.tokens == (2, 6, 3, 8)  # "a ", "reply ", "to ", "<think>\n"
    sent = server.requests[-1]
    assert (sent["top_k"], sent["continue_final_message"], sent["add_generation_prompt"]) == (5, True, False)


def test_a_reply_cut_at_the_token_limit_has_stop_reason_length(server: OpenAIServer) -> None:
    async def ask(policy: OpenAIPolicy) -> Reply:
        return await policy.sample(policy.render(ASK), attrs.evolve(SETTINGS, max_tokens=2))

    reply = started(options(server), ask)
    assert (reply.text, reply.stop_reason) == ("a reply ", "length")


def test_separate_thinking_is_part_of_the_raw_text_and_its_own_field(server: OpenAIServer) -> None:
    server.reasoning = "Tiles, perhaps."
    reply = started(options(server), one_reply)
    assert reply.thinking == "Tiles, perhaps."
    assert reply.text == "<think>\nTiles, perhaps.\n</think>\n\na reply to Write a kernel."


def test_without_log_probabilities_a_reply_has_no_tokens(server: OpenAIServer) -> None:
    server.logprobs = False
    reply = started(options(server, logprobs=False), one_reply)
    assert (reply.tokens, reply.logprobs) == ((), ())
    assert "logprobs" not in server.requests[-1]


@pytest.mark.parametrize("logprobs", [True, False])
def test_a_reply_has_the_tokens_that_the_endpoint_counts(logprobs: bool, server: OpenAIServer) -> None:
    assert started(options(server, logprobs=logprobs), one_reply).counted == (1, 6)


def test_a_refusal_in_its_own_field_is_the_text() -> None:
    message = {"content": None, "refusal": "I cannot help with that."}
    reply = OpenAIPolicy(OpenAIConfig("tiny", logprobs=False))._reply(
        {"choices": [{"message": message, "finish_reason": "stop"}]}
    )
    assert (reply.text, reply.counted) == ("I cannot help with that.", None)


def test_prompt_tokens_are_estimated_as_one_per_three_bytes_and_four_per_message(server: OpenAIServer) -> None:
    prompt = OpenAIPolicy(options(server)).render((Message("user", "abcdefg"), Message("user", "é")))
    # (7 + 2 bytes) / 3 = 3 tokens; two messages add 8.
    assert len(prompt.tokens) == 3 + 8


def test_the_context_length_is_read_from_the_endpoint(server: OpenAIServer) -> None:
    assert started(options(server)).context_tokens == 100_000


DESCRIPTIONS = {
    "llama.cpp b11549": {"owned_by": "llamacpp", "meta": {"n_vocab": 49152, "n_ctx": 512, "n_ctx_train": 8192}},
    "vLLM 0.33.0": {"owned_by": "vllm", "root": "tiny", "parent": None, "max_model_len": 512, "permission": []},
    "SGLang 0.5.23": {"owned_by": "sglang", "root": "tiny", "parent": None, "max_model_len": 512},
    "gateways": {"context_length": 512},
}
"""Fields of a model in `/models` of these servers."""


@pytest.mark.parametrize("facts", DESCRIPTIONS.values(), ids=list(DESCRIPTIONS))
def test_the_context_length_is_found_where_servers_report_it(facts: dict[str, Any], server: OpenAIServer) -> None:
    server.max_model_len = None
    server.model_facts = facts
    assert started(options(server)).context_tokens == 512


def test_adapters_have_the_context_length_of_their_model(server: OpenAIServer) -> None:
    server.adapters = {"mine": "/adapters/mine"}
    assert started(options(server, model="mine")).context_tokens == 100_000


@pytest.mark.parametrize("stated", [5000, 200_000])
def test_the_smaller_of_two_context_lengths_applies(stated: int, server: OpenAIServer) -> None:
    assert started(options(server, context_tokens=stated)).context_tokens == min(stated, 100_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
LIKE_A_RESPONSE = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": JSON | st.fixed_dictionaries({"content": JSON}), "finish_reason": JSON},
                optional={"token_ids": JSON, "logprobs": JSON | st.fixed_dictionaries({"content": JSON})},
            ),
            max_size=2,
        )
    }
)


@given(JSON | LIKE_A_RESPONSE, st.booleans())
def test_a_response_of_any_structure_is_a_reply_or_unreadable(response: Any, logprobs: bool) -> None:
    policy = OpenAIPolicy(OpenAIConfig("tiny", logprobs=logprobs))
    try:
        reply = policy._reply(response)
    except (IncompleteResponse, *UNREADABLE):
        return
    assert isinstance(reply.text, str)
    assert len(reply.tokens) == len(reply.logprobs)
    assert all(number <= 0 for number in reply.logprobs)


# --- replies that may have been paid ---------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["drop", "broken", "half", "no_choices", "not_json", "aborted"])
def test_without_resend_a_failure_that_may_cost_something_loses_the_reply_at_once(
    failure: str, server: OpenAIServer
) -> None:
    async def ask(policy: OpenAIPolicy) -> Reply:
        server.fail = lambda body: failure
        return await one_reply(policy)

    with pytest.raises(InfrastructureError):
        started(options(server, resend=False), ask)
    assert len(server.requests) == 2  # the first request of the start, and this one


def test_without_resend_a_request_that_was_never_sent_is_repeated() -> None:
    """Refused connections cost nothing: they end the command, which can be continued, and lose no reply."""

    async def ask() -> None:
        unreachable = endpoint.Endpoint(
            OpenAIConfig("tiny", base_url="http://127.0.0.1:9/v1", resend=False, patience_s=0.2)
        )
        try:
            await unreachable.request({"messages": []}, dict)
        finally:
            await unreachable.aclose()

    with pytest.raises(KernelRLError, match="no connection") as ended:
        asyncio.run(ask())
    assert not isinstance(ended.value, InfrastructureError)


def test_without_resend_requests_to_an_overloaded_endpoint_are_repeated(server: OpenAIServer) -> None:
    server.fail = lambda body: "429" if len(server.requests) == 2 else ""
    assert started(options(server, resend=False), one_reply).text.startswith("a reply")
    assert len(server.requests) == 3


# --- errors before the first sample ---------------------------------------------------------------------------------


def test_a_missing_key_names_its_variable(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingPrerequisite, match="OPENAI_API_KEY is not set"):
        started(options(server))


def test_a_refused_key_is_a_missing_prerequisite_and_is_not_shown(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    with pytest.raises(MissingPrerequisite) as failure:
        started(options(server))
    assert "the key was refused (401)" in str(failure.value)
    assert "sk-wrong" not in str(failure.value)
    assert len(server.requests) == 1


def test_an_unknown_model_is_refused_with_the_nearest_name(server: OpenAIServer) -> None:
    with pytest.raises(UsageError, match="serves no model 'tiney'; did you mean 'tiny'"):
        started(options(server, model="tiney"))


def test_an_endpoint_without_log_probabilities_is_refused(server: OpenAIServer) -> None:
    server.logprobs = False
    with pytest.raises(UsageError, match=r"no log-probabilities of tokens; policy\.logprobs=false"):
        started(options(server))


def test_an_endpoint_that_reports_no_context_length_needs_context_tokens(server: OpenAIServer) -> None:
    server.max_model_len = None
    with pytest.raises(UsageError, match="does not report the context length") as failure:
        started(options(server))
    assert failure.value.fix == "set policy.context_tokens"
    assert started(options(server, context_tokens=123)).context_tokens == 123


def test_an_unreachable_endpoint_is_a_missing_prerequisite(server: OpenAIServer) -> None:
    with pytest.raises(MissingPrerequisite, match="no connection"):
        started(options(server, base_url="http://127.0.0.1:9/v1"))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8000", "http://user:secret@host/v1", "http://host/v1?api_key=secret", "file:///v1",
        "http://secret@h:x", "http://u:secret@\u2100/v1",
    ],
)  # fmt: skip
def test_an_invalid_url_or_one_with_a_secret_is_refused_without_being_shown(address: str) -> None:
    problems = list(OpenAIConfig("tiny", base_url=address).problems())
    assert problems
    assert "secret" not in "".join(problems)


def test_extra_body_cannot_override_the_recipe() -> None:
    assert list(OpenAIConfig("tiny", extra_body={"seed": 1, "user": "me"}).problems()) == [
        "extra_body must not set 'seed', which kernelrl sets from the recipe"
    ]


@pytest.mark.parametrize(
    ("messages", "settings", "message"),
    [
        (ASK, attrs.evolve(SETTINGS, top_k=5), "sampling.top_k=5"),
        ((*ASK, Message("assistant", "<think>\n")), SETTINGS, "prompt.think_prefix"),
    ],
)
def test_features_of_vllm_are_refused_for_other_servers(
    server: OpenAIServer, messages: tuple[Message, ...], settings: SamplingSettings, message: str
) -> None:
    async def ask(policy: OpenAIPolicy) -> None:
        await policy.sample(policy.render(messages), settings)

    with pytest.raises(UsageError, match=message):
        started(options(server), ask)


def test_training_is_refused(server: OpenAIServer) -> None:
    policy = OpenAIPolicy(options(server))
    assert not policy.capabilities.losses
    assert not isinstance(policy, TrainablePolicy)
    with pytest.raises(UsageError, match="cannot train"):
        asyncio.run(policy.start(attrs.evolve(context(), loss="ppo")))
    assert server.requests == []


# --- errors after the start -----------------------------------------------------------------------------------------


def failing(*failures: str) -> Callable[[dict[str, Any]], str]:
    """The first requests fail with these failures, later ones succeed."""
    waiting = list(failures)
    return lambda body: waiting.pop(0) if waiting else ""


def after_start(server: OpenAIServer, fail: Callable[[dict[str, Any]], str]) -> Callable[[OpenAIPolicy], Any]:
    async def ask(policy: OpenAIPolicy) -> Reply:
        server.fail = fail
        return await one_reply(policy)

    return ask


@pytest.mark.parametrize(
    "failures", [("429", "429"), ("500",), ("drop",), ("broken",), ("half", "half"), ("no_choices",)]
)
def test_a_request_is_retried_after_a_transient_failure(server: OpenAIServer, failures: tuple[str, ...]) -> None:
    reply = started(options(server, patience_s=20.0), after_start(server, failing(*failures)))
    assert reply.text == "a reply to Write a kernel."
    assert len(server.requests) == 1 + len(failures) + 1


@pytest.mark.parametrize(
    ("failure", "message"),
    [("429", "status 429"), ("500", "status 500"), ("drop", "connection"), ("broken", "connection")],
)
def test_an_unavailable_endpoint_ends_the_command(server: OpenAIServer, failure: str, message: str) -> None:
    with pytest.raises(KernelRLError, match=message) as ended:
        started(options(server), after_start(server, lambda body: failure))
    assert not isinstance(ended.value, InfrastructureError)
    assert ended.value.exit_code is ExitCode.FAILED
    assert "kernelrl resume" in ended.value.fix


def test_an_account_without_credit_ends_the_command_without_a_retry(server: OpenAIServer) -> None:
    with pytest.raises(MissingPrerequisite, match="no credit left"):
        started(options(server, patience_s=60.0), after_start(server, lambda body: "quota"))
    assert len(server.requests) == 2


def test_one_request_that_always_fails_loses_one_sample(server: OpenAIServer) -> None:
    async def ask(policy: OpenAIPolicy) -> Any:
        server.fail = lambda body: "500" if body["seed"] == 7 else ""

        async def others() -> None:
            for _ in range(10):
                await policy.sample(policy.render(ASK), attrs.evolve(SETTINGS, seed=1))
                await takes_async(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(others())
            lost = group.create_task(asyncio.wait_for(_failure(one_reply(policy)), DEADLINE_S))
        return lost.result()

    assert isinstance(started(options(server), ask), InfrastructureError)


def test_an_endpoint_that_is_gone_after_some_replies_ends_the_command(
    server: OpenAIServer,
) -> None:
    replied = threading.Event()

    def dies_after_one_reply(body: dict[str, Any]) -> str:
        if body["seed"] == 7:
            # This request is in flight while the other one gets its reply.
            replied.wait(DEADLINE_S)
            return "drop"
        return ""

    async def ask(policy: OpenAIPolicy) -> Any:
        server.fail = dies_after_one_reply

        async def other() -> None:
            await policy.sample(policy.render(ASK), attrs.evolve(SETTINGS, seed=1))
            replied.set()

        async with asyncio.TaskGroup() as group:
            lost = group.create_task(asyncio.wait_for(_failure(one_reply(policy)), DEADLINE_S))
            group.create_task(other())
        return lost.result()

    ended = started(options(server), ask)
    assert isinstance(ended, KernelRLError)
    assert not isinstance(ended, InfrastructureError)


@pytest.mark.parametrize("failure", ["half", "not_json", "no_choices", "aborted"])
def test_incomplete_responses_lose_one_sample_after_three_requests(server: OpenAIServer, failure: str) -> None:
    with pytest.raises(InfrastructureError, match="3 times"):
        started(options(server, patience_s=20.0), after_start(server, lambda body: failure))
    assert len(server.requests) == 1 + 3


def test_a_web_page_as_response_is_refused_with_base_url_in_the_fix(server: OpenAIServer) -> None:
    server.fail = lambda body: "not_json"
    with pytest.raises(UsageError, match="not the JSON of an OpenAI-compatible server") as refused:
        started(options(server, patience_s=20.0))
    assert "base_url" in refused.value.fix


REFUSALS = {
    "llama.cpp b11549": {
        "error": {
            "code": 400,
            "message": "request (831 tokens) exceeds the available context size (512 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 831,
            "n_ctx": 512,
        }
    },
    "vLLM 0.33.0": {
        "error": {
            "message": "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 "
            "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            "input prompt. (parameter=input_tokens, value=513)",
            "type": "BadRequestError",
            "param": "input_tokens",
            "code": 400,
        }
    },
    "vLLM 0.33.0, in get_max_tokens": {
        "error": {
            "message": "Input length (831) exceeds model's maximum context length (512).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }
    },
    "vLLM, renderers/params.py of commit 017638d7": {
        "error": {
            "message": "You passed 831 input tokens and requested 0 output tokens. However, the model's context length "
            "is only 512 tokens, resulting in a maximum input length of 512 tokens. Please reduce the length of the "
            "input prompt. (parameter=input_tokens, value=831)",
            "type": "BadRequestError",
            "param": "input_tokens",
            "code": 400,
        }
    },
    "SGLang 0.5.23": {
        "object": "error",
        "message": "The input (831 tokens) is longer than the model's context length (512 tokens).",
        "type": "BadRequest",
        "param": None,
        "code": 400,
    },
    "LM Studio": {
        "error": "Trying to keep the first 831 tokens when context the overflows. However, the model is loaded with "
        "context length of only 512 tokens, which is not enough. Try to load the model with a larger context length."
    },
    "LM Studio, newer": {
        "error": "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: 831>= n_ctx: 512). Try to load the model with a larger context length, or provide a shorter input."
    },
    "SGLang 0.5.23, with the reply": {
        "object": "error",
        "message": "Requested token count exceeds the model's maximum context length of 512 tokens. You requested a "
        "total of 831 tokens: 731 tokens from the input messages and 100 tokens for the completion. Please reduce the "
        "number of tokens in the input messages or the completion to fit within the limit.",
        "type": "BadRequest",
        "param": None,
        "code": 400,
    },
}
"""Refusals of prompts, as these servers write them."""


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=list(REFUSALS))
def test_the_fix_for_a_prompt_that_is_too_long_names_the_context_length(
    refusal: dict[str, Any], server: OpenAIServer
) -> None:
    server.refusal = refusal
    with pytest.raises(UsageError, match="refuses the request") as refused:
        started(options(server), after_start(server, lambda body: "long"))
    assert refused.value.fix.startswith("set policy.context_tokens below 512,")


def test_the_fix_for_a_reply_that_is_too_long_names_its_maximum(server: OpenAIServer) -> None:
    """OpenAI's text, and that of SGLang 0.5.23."""
    server.refusal = {
        "object": "error",
        "message": "max_completion_tokens is too large: 700.This model supports at most 512 completion tokens.",
        "type": "BadRequest",
        "code": 400,
    }
    with pytest.raises(UsageError) as refused:
        started(options(server), after_start(server, lambda body: "long"))
    assert refused.value.fix == "set sampling.max_tokens to at most 512"


@pytest.mark.parametrize("failure", ["429", "500", "half", "drop", "broken", "not_json", "long"])
def test_the_key_is_in_no_message_and_no_log(
    server: OpenAIServer, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(KernelRLError) as failed:
        started(options(server), after_start(server, lambda body: failure))
    error: BaseException | None = failed.value
    while error is not None:
        assert KEY not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert KEY not in caplog.text
    assert "/chat/completions" not in caplog.text


def test_max_concurrent_limits_concurrent_requests(server: OpenAIServer) -> None:
    under_way, most = 0, 0

    def slow(messages: list[dict[str, str]]) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        takes(0.02)
        under_way -= 1
        return "done"

    async def ask(policy: OpenAIPolicy) -> None:
        await asyncio.gather(*(one_reply(policy) for _ in range(12)))

    server.write_reply = slow
    started(options(server, max_concurrent=3), ask)
    assert most <= 3


async def _failure(reply: Any) -> BaseException | None:
    try:
        await reply
    except KernelRLError as error:
        return error
    return None
