"""Failures of the key, the model, the server and the network."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tinker.lib import internal_client_holder

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.policies import Message
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_plugin_tinker.saved import SavedState
from kernelrl_plugin_tinker.service import ServerGone
from kernelrl_testing.waiting import wait_until_async

MESSAGES = (Message("user", "Write relu.\n"),)


async def nothing(policy: TinkerPolicy) -> None:
    pass


# --- the key --------------------------------------------------------------------------------------------------------


def test_a_missing_key_is_a_missing_prerequisite_of_the_hosted_service(monkeypatch) -> None:
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    assert TinkerConfig(model="Qwen/Qwen3-8B").requires().environment == ("TINKER_API_KEY",)
    assert TinkerConfig(server="local").requires().environment == ()
    assert TinkerConfig(model="m", base_url="http://127.0.0.1:8124").requires().environment == ()


@pytest.mark.parametrize(
    "address",
    ["http://user:geheim@host:8124", "http://geheim@host", "http://host?key=geheim", "ftp://u:geheim@h", "http://h:x"],
)
def test_an_invalid_url_or_one_with_a_secret_is_refused_without_being_shown(address: str) -> None:
    problems = list(TinkerConfig(model="m", base_url=address).problems())
    assert problems
    assert "geheim" not in "".join(problems)


def test_a_variable_with_a_secret_is_refused_without_being_shown(run, policy, monkeypatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", "http://user:geheim@127.0.0.1:9")
    with pytest.raises(UsageError, match="TINKER_BASE_URL must have no user, password or query") as failure:
        run(policy(base_url=None), nothing)
    assert "geheim" not in str(failure.value)


def test_a_url_with_a_port_or_a_path_is_accepted() -> None:
    for address in ("http://127.0.0.1:8124", "https://host/tinker", "http://[::1]:8124"):
        assert list(TinkerConfig(model="m", base_url=address).problems()) == []


@pytest.mark.parametrize(
    ("key", "fault", "message"),
    [("sk-of-somebody-else", "", "must begin with tml-"), ("tml-wrong-secret", "refused", "refuses the API key")],
)
def test_an_invalid_key_is_refused_without_being_shown(run, policy, proxy, monkeypatch, key, fault, message) -> None:
    monkeypatch.setenv("TINKER_API_KEY", key)
    if fault:
        proxy.fault(fault, "get_server_capabilities", 50)
    with pytest.raises(MissingPrerequisite, match=message) as failure:
        run(policy(), nothing)
    assert key not in str(failure.value)
    assert "TINKER_API_KEY" in failure.value.fix


def test_a_missing_key_of_a_given_server_is_reported_with_that_server_s_variable(
    run, policy, proxy, monkeypatch
) -> None:
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    proxy.fault("refused", "get_server_capabilities", 50)
    with pytest.raises(MissingPrerequisite, match="requires an API key, and TINKER_API_KEY is not set") as failure:
        run(policy(), nothing)
    assert "account" not in failure.value.fix
    assert "KERNELRL_TINKER_SERVER_KEY" in failure.value.fix


# --- the server's capabilities --------------------------------------------------------------------------------------


def test_an_unknown_model_is_refused_at_the_start(run, policy) -> None:
    with pytest.raises(UsageError, match="does not serve 'tinny'"):
        run(policy(model="tinny"), nothing)


def test_a_loss_the_server_lacks_is_refused_at_the_start(run, policy, context) -> None:
    from attrs import evolve

    with pytest.raises(UsageError, match="does not offer 'dro'"):
        run(policy(), nothing, evolve(context, loss="dro"))


def test_only_kernelrl_tinker_server_has_sequence_ratios(run, policy, proxy) -> None:
    async def ratios(started: TinkerPolicy) -> frozenset[str]:
        return started.capabilities.ratios

    assert run(policy(), ratios) == {"token", "sequence"}
    proxy.fault("refused", "/kernelrl/capabilities")
    assert run(policy(), ratios) == {"token"}


def test_only_kernelrl_tinker_server_gets_seeds_of_more_than_31_bits(run, sampling, policy, proxy) -> None:
    seeds: list[int] = []

    async def sample(started: TinkerPolicy) -> None:
        sampler = started._trainer.sampler
        original = sampler.sample

        def noting(prompt, count, parameters):
            seeds.append(parameters.seed)
            return original(prompt, count, parameters)

        sampler.sample = noting
        await started.sample(started.render(MESSAGES), sampling(2**40 + 5))

    run(policy(), sample)
    proxy.fault("refused", "/kernelrl/capabilities")
    run(policy(), sample)
    assert seeds == [2**40 + 5, 5]


def test_a_path_that_the_sdk_refuses_to_delete_does_not_end_the_run(run, policy, tmp_path) -> None:
    checkpoint = tmp_path / "checkpoints/000001"
    checkpoint.mkdir(parents=True)

    async def save(started: TinkerPolicy) -> Any:
        of_another_form = SavedState("tinker://model_1/step-000001", "tinker://model_1/sampler-000001")
        started._trainer.at_server.add(of_another_form, "000000")
        return await started.save(checkpoint)

    assert run(policy(), save)["state"]


def test_context_tokens_above_the_model_s_limit_are_refused(run, policy) -> None:
    with pytest.raises(UsageError, match="allows 2048"):
        run(policy(context_tokens=4096), nothing)


def test_a_prompt_too_long_for_a_reply_is_a_usage_error(run, one_reply, policy, context) -> None:
    with pytest.raises(UsageError, match="the context 8: no tokens remain"):
        run(policy(context_tokens=8), one_reply)


def test_a_checkpoint_of_another_model_is_refused(run, policy, tmp_path) -> None:
    state = {"model": "Qwen/Qwen3-8B", "steps": 1, "state": "tinker://a/weights/b", "sampler": "tinker://a/weights/b"}
    with pytest.raises(UsageError, match="is of the model 'Qwen/Qwen3-8B'"):
        run(policy(), lambda policy: policy.load(state, tmp_path))


def test_a_deleted_checkpoint_is_a_usage_error(run, policy, server, tmp_path) -> None:
    gone = "tinker://s1:train:0/weights/x"
    state = {"model": server.models[0], "steps": 1, "state": gone, "sampler": gone}
    with pytest.raises(UsageError, match="there is no checkpoint") as failure:
        run(policy(), lambda policy: policy.load(state, tmp_path))
    assert "checkpoint_days" in failure.value.fix


def test_the_tokenizer_of_the_server_s_own_model_comes_from_the_server(run, one_reply, policy, monkeypatch) -> None:
    """`tiny` is neither a directory nor on the hub."""
    pytest.importorskip("tinker_cookbook")
    monkeypatch.setattr("tinker_cookbook.tokenizer_utils.get_tokenizer", lambda name: pytest.fail("used the hub"))

    async def work(started: TinkerPolicy):
        return started.render(MESSAGES).tokens, await one_reply(started)

    tokens, reply = run(policy(model="tiny", renderer=None), work)
    assert len(tokens) > len(MESSAGES[0].content) - 1  # one token per byte
    assert len(reply.tokens) == len(reply.logprobs)


# --- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "path"),
    [("storm", "asample"), ("half", "retrieve_future"), ("broken", "asample"), ("failed", "retrieve_future")],
)
def test_a_reply_is_the_same_after_transient_failures(run, one_reply, policy, proxy, fault, path) -> None:
    expected = run(policy(), one_reply)

    async def work(started: TinkerPolicy):
        proxy.fault(fault, path, 2)
        return await one_reply(started)

    assert run(policy(), work) == expected


def test_a_hung_reply_is_retried_and_then_lost(run, one_reply, policy, proxy) -> None:
    async def work(started: TinkerPolicy) -> None:
        proxy.fault("hang", "retrieve_future", 50)
        with pytest.raises(InfrastructureError, match="a reply took more than 1 s"):
            await one_reply(started)

    run(policy(sample_timeout_s=1.0, retries=1), work)
    assert proxy.seen.count("/api/v1/asample") == 2


def test_an_unreachable_server_stops_the_run(run, one_reply, policy, proxy) -> None:
    async def work(started: TinkerPolicy) -> None:
        proxy.leave()
        with pytest.raises(ServerGone, match="has not responded for 8 s") as failure:
            await one_reply(started)
        assert "kernelrl resume" in failure.value.fix
        assert failure.value.exit_code == 1

    run(policy(give_up_after_s=8.0), work)


def test_an_unreachable_server_is_reported_at_the_start(run, policy, proxy) -> None:
    proxy.leave()
    with pytest.raises(MissingPrerequisite, match=r"no connection .*for 1 s") as failure:
        run(policy(give_up_after_s=1.0), nothing)
    assert failure.value.fix == "start the server, or correct policy.base_url"


def test_waiting_for_an_unreachable_server_shows_a_line(run, policy, proxy, context) -> None:
    lines: list[str] = []

    async def work(started: TinkerPolicy) -> None:
        proxy.leave()
        await wait_until_async(lambda: lines)

    run(policy(), work, attrs.evolve(context, say=lines.append))
    assert lines[0].startswith(f"waiting for the server at {proxy.base_url}")


def test_failed_heartbeats_are_not_logged(run, policy, caplog) -> None:
    async def work(started: TinkerPolicy) -> None:
        internal_client_holder.logger.warning("Session heartbeat failed for 130 seconds")
        internal_client_holder.logger.warning("The job is paused due to billing status.")

    run(policy(), work)
    messages = [record.getMessage() for record in caplog.records]
    assert "The job is paused due to billing status." in messages
    assert not any("heartbeat" in message for message in messages)
