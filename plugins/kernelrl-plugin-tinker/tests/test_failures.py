"""What happens when key, model, server or network are not as they should be."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.kinds import PolicyContext, SamplingSettings, TrainingSample, TrainingStep
from kernelrl_core.values import Message
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_plugin_tinker.service import ServerGone
from kernelrl_tinker_server.local import LocalServer

ASKED = (Message("user", "Write relu.\n"),)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(state=tmp_path_factory.mktemp("state")) as started:
        yield started


@pytest.fixture
def proxy(server, make_proxy):
    return make_proxy(server.base_url)


@pytest.fixture
def policy(server, proxy):
    """Through the proxy; impatient."""

    def make(**options: Any) -> TinkerPolicy:
        given = {"model": server.models[0], "renderer": "chat_template", "base_url": proxy.base_url, "retries": 2}
        return TinkerPolicy(TinkerConfig(**(given | {"give_up_after_s": 20.0} | options)))

    return make


@pytest.fixture
def context(tmp_path: Path):
    async def none() -> tuple[()]:
        return ()

    return PolicyContext(3, tmp_path, tmp_path, none, "none", lambda line: None, "importance_sampling")


def run(policy: TinkerPolicy, context: PolicyContext, work) -> Any:
    async def whole() -> Any:
        try:
            await policy.start(context)
            return await work(policy)
        finally:
            await policy.aclose()

    return asyncio.run(asyncio.wait_for(whole(), 60))


async def nothing(policy: TinkerPolicy) -> None:
    pass


def one_reply(sampling):
    async def work(policy: TinkerPolicy):
        return await policy.sample(policy.render(ASKED), sampling(3))

    return work


def learn(loss, optimizer, steps: int = 1, then=None):
    """Some equal steps; the answer is the reply that is drawn afterwards."""

    async def work(policy: TinkerPolicy):
        prompt = policy.render(ASKED).tokens
        samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 1.0 - a) for a in range(3))
        for number in range(steps):
            if then is not None:
                await then(policy, number)
            metrics = await policy.train(TrainingStep(number, samples, 2, loss("importance_sampling"), optimizer()))
        return metrics

    return work


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
def test_an_address_with_a_secret_or_none_at_all_is_refused_without_being_shown(address: str) -> None:
    problems = list(TinkerConfig(model="m", base_url=address).problems())
    assert problems
    assert "geheim" not in "".join(problems)


def test_a_variable_with_a_secret_is_refused_without_being_shown(policy, context, monkeypatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", "http://user:geheim@127.0.0.1:9")
    with pytest.raises(UsageError, match="TINKER_BASE_URL must hold no user, password or query") as told:
        run(policy(base_url=None), context, nothing)
    assert "geheim" not in str(told.value)


def test_an_address_with_a_port_or_a_path_is_accepted() -> None:
    for address in ("http://127.0.0.1:8124", "https://host/tinker", "http://[::1]:8124"):
        assert list(TinkerConfig(model="m", base_url=address).problems()) == []


@pytest.mark.parametrize(
    ("key", "fault", "message"),
    [("sk-of-somebody-else", "", "must begin with tml-"), ("tml-wrong-secret", "refused", "refuses the API key")],
)
def test_a_bad_key_is_told_without_being_shown(policy, proxy, context, monkeypatch, key, fault, message) -> None:
    monkeypatch.setenv("TINKER_API_KEY", key)
    if fault:
        proxy.fault(fault, "get_server_capabilities", 50)
    with pytest.raises(MissingPrerequisite, match=message) as told:
        run(policy(), context, nothing)
    assert key not in str(told.value)
    assert "TINKER_API_KEY" in told.value.fix


def test_a_server_that_wants_a_key_where_none_is_set_says_whose(policy, proxy, context, monkeypatch) -> None:
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    proxy.fault("refused", "get_server_capabilities", 50)
    with pytest.raises(MissingPrerequisite, match="wants an API key, and TINKER_API_KEY is not set") as told:
        run(policy(), context, nothing)
    assert "account" not in told.value.fix
    assert "KERNELRL_TINKER_SERVER_KEY" in told.value.fix


# --- what the server has --------------------------------------------------------------------------------------------


def test_an_unknown_model_is_refused_at_the_start(policy, context) -> None:
    with pytest.raises(UsageError, match="does not serve 'tinny'"):
        run(policy(model="tinny"), context, nothing)


def test_a_loss_the_server_lacks_is_refused_at_the_start(policy, context) -> None:
    from attrs import evolve

    with pytest.raises(UsageError, match="does not offer 'dro'"):
        run(policy(), evolve(context, loss="dro"), nothing)


def test_a_context_longer_than_the_models_is_refused(policy, context) -> None:
    with pytest.raises(UsageError, match="allows 2048"):
        run(policy(context_tokens=4096), context, nothing)


def test_a_prompt_without_room_for_a_reply_is_the_users_mistake(policy, context, sampling) -> None:
    with pytest.raises(UsageError, match="the context holds 8"):
        run(policy(context_tokens=8), context, one_reply(sampling))


def test_a_checkpoint_of_another_model_is_refused(policy, context, tmp_path) -> None:
    state = {"model": "Qwen/Qwen3-8B", "steps": 1, "state": "tinker://a/weights/b", "sampler": "tinker://a/weights/b"}
    with pytest.raises(UsageError, match="is of the model 'Qwen/Qwen3-8B'"):
        run(policy(), context, lambda policy: policy.load(state, tmp_path))


def test_a_checkpoint_that_is_gone_is_told(policy, context, server, tmp_path) -> None:
    gone = "tinker://s1:train:0/weights/x"
    state = {"model": server.models[0], "steps": 1, "state": gone, "sampler": gone}
    with pytest.raises(UsageError, match="there is no checkpoint") as told:
        run(policy(), context, lambda policy: policy.load(state, tmp_path))
    assert "checkpoint_days" in told.value.fix


def test_the_servers_own_model_brings_its_tokenizer(policy, context, sampling, monkeypatch) -> None:
    """`tiny` is neither a directory nor at the hub."""
    monkeypatch.setattr("tinker_cookbook.tokenizer_utils.get_tokenizer", lambda name: pytest.fail("asked the hub"))

    async def work(started: TinkerPolicy):
        return started.render(ASKED).tokens, await one_reply(sampling)(started)

    tokens, reply = run(policy(model="tiny", renderer=None), context, work)
    assert len(tokens) > len(ASKED[0].content) - 1  # a token for each byte
    assert len(reply.tokens) == len(reply.logprobs)


# --- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "path"),
    [("storm", "asample"), ("half", "retrieve_future"), ("broken", "asample"), ("failed", "retrieve_future")],
)
def test_a_reply_survives_failures_on_the_way(policy, proxy, context, sampling, fault, path) -> None:
    untroubled = run(policy(), context, one_reply(sampling))

    async def work(started: TinkerPolicy):
        proxy.fault(fault, path, 2)
        return await one_reply(sampling)(started)

    assert run(policy(), context, work) == untroubled


def test_a_hung_reply_is_asked_for_again_and_then_given_up(policy, proxy, context, sampling) -> None:
    async def work(started: TinkerPolicy) -> None:
        proxy.fault("hang", "retrieve_future", 50)
        with pytest.raises(InfrastructureError, match="a reply took more than 1 s"):
            await one_reply(sampling)(started)

    run(policy(sample_timeout_s=1.0, retries=1), context, work)
    assert proxy.seen.count("/api/v1/asample") == 2


def test_a_server_that_is_gone_stops_the_run(policy, proxy, context, sampling) -> None:
    async def work(started: TinkerPolicy) -> None:
        proxy.leave()
        with pytest.raises(ServerGone, match="has not answered for 2 s") as told:
            await one_reply(sampling)(started)
        assert "kernelrl resume" in told.value.fix
        assert told.value.exit_code == 1

    run(policy(give_up_after_s=2.0), context, work)


def test_nobody_there_is_told_at_once(policy, proxy, context) -> None:
    proxy.leave()
    with pytest.raises(MissingPrerequisite, match=r"no connection .*for 1 s") as told:
        run(policy(give_up_after_s=1.0), context, nothing)
    assert told.value.fix == "start the server, or correct policy.base_url"


def test_a_server_that_is_away_for_a_while_is_waited_for_aloud(policy, proxy, context) -> None:
    said: list[str] = []

    async def work(started: TinkerPolicy) -> None:
        proxy.leave()
        for _ in range(50):
            await asyncio.sleep(0.1)
            if said:
                return

    run(policy(give_up_after_s=2.0), attrs.evolve(context, say=said.append), work)
    assert said[0].startswith(f"waiting for the server at {proxy.base_url}")


# --- training -------------------------------------------------------------------------------------------------------


def test_a_step_is_repeated_with_a_client_made_from_the_last_checkpoint(
    policy, proxy, context, loss, optimizer, tmp_path
) -> None:
    """The result is that of a run in which nothing failed."""

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = Path(tempfile.mkdtemp(dir=tmp_path, prefix=f"{number}-"))
        if number:
            await started.save(directory)

    async def troubled(started: TinkerPolicy, number: int) -> None:
        await saved(started, number)
        proxy.fault("failed", "retrieve_future", after=1)  # the pass succeeds, the optimizer step does not

    untroubled = run(policy(), context, learn(loss, optimizer, 3, saved))
    metrics = run(policy(), context, learn(loss, optimizer, 3, troubled))
    assert untroubled.pop("retried") == 0
    assert metrics.pop("retried") == 1
    assert metrics == untroubled


@pytest.mark.parametrize("path", ["forward_backward", "optim_step", "save_weights_for_sampler"])
def test_a_training_request_that_hangs_is_repeated_with_a_new_client(
    policy, proxy, context, loss, optimizer, tmp_path, path: str
) -> None:
    """The result is that of a run in which nothing hung."""

    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number:
            await started.save(tmp_path)
            proxy.fault("hang", path)

    untroubled = run(policy(), context, learn(loss, optimizer, 2))
    metrics = run(policy(train_timeout_s=1.0), context, learn(loss, optimizer, 2, troubled))
    assert (untroubled.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == untroubled


def test_a_save_that_hangs_after_a_step_says_what_is_lost(policy, proxy, context, loss, optimizer, tmp_path) -> None:
    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number:
            proxy.fault("hang", "save_weights")
            await started.save(tmp_path)

    with pytest.raises(KernelRLError, match=r"1 steps after .* saving the state took more than 1 s") as told:
        run(policy(train_timeout_s=1.0), context, learn(loss, optimizer, 2, troubled))
    assert "kernelrl resume" in told.value.fix


def test_a_server_that_begins_no_training_in_time_is_told(policy, proxy, context) -> None:
    """It answers everything else."""
    proxy.fault("hang", "create_model", 50)
    with pytest.raises(InfrastructureError, match=r"a training client for .* took more than 1 s") as told:
        run(policy(train_timeout_s=1.0, retries=1), context, nothing)
    assert proxy.seen.count("/api/v1/create_model") == 2
    assert "policy.train_timeout_s" in told.value.fix


def test_a_checkpoint_that_hangs_once_is_loaded(policy, proxy, context, loss, optimizer, tmp_path) -> None:
    async def loaded(started: TinkerPolicy, number: int) -> None:
        if number:
            state = await started.save(tmp_path)
            proxy.fault("hang", "load_weights")
            await started.load(state, tmp_path)

    untroubled = run(policy(), context, learn(loss, optimizer, 2))
    metrics = run(policy(train_timeout_s=1.0), context, learn(loss, optimizer, 2, loaded))
    assert (untroubled.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == untroubled


@pytest.mark.parametrize("failed", ["first pass", "second pass", "the rest"])
def test_passes_before_the_rest_of_a_step_end_alike_whatever_fails(
    policy, proxy, context, loss, optimizer, tmp_path, failed: str
) -> None:
    """Gradients of 2 and 1 of 5 samples come first; the result is that of a run in which nothing failed."""

    def learning(trouble: str):
        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED).tokens
            samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(5))
            step = TrainingStep(0, samples, 1, loss("ppo"), optimizer())
            for number, (begin, end) in enumerate(((0, 2), (2, 3))):
                if trouble == ("first pass", "second pass")[number]:
                    proxy.fault("failed", "retrieve_future")
                await started.accumulate(attrs.evolve(step, samples=samples[begin:end]))
            if trouble == "the rest":
                proxy.fault("failed", "retrieve_future", after=1)
            metrics = dict(await started.train(step))
            metrics.pop("retried")
            return metrics, await started.sample(started.render(ASKED), sampled)

        return work

    sampled = SamplingSettings(16, 1.0, 1.0, -1, (), 5)
    untroubled = run(policy(), context, learning(""))
    assert run(policy(), context, learning(failed)) == untroubled


def test_a_step_in_passes_is_the_step_but_for_rounding(policy, context, loss, optimizer) -> None:
    def learning(cuts):
        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED).tokens
            samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(5))
            step = TrainingStep(0, samples, 2, loss("ppo"), optimizer())
            for begin, end in cuts:
                await started.accumulate(attrs.evolve(step, samples=samples[begin:end]))
            return dict(await started.train(step))

        return work

    whole = run(policy(), context, learning(()))
    parted = run(policy(), context, learning(((0, 1), (1, 3))))
    for name in ("loss", "grad_norm", "ratio_mean", "tokens"):
        assert parted[name] == pytest.approx(whole[name], rel=1e-5)


def test_steps_after_the_last_checkpoint_are_never_lost_in_silence(policy, proxy, context, loss, optimizer) -> None:
    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number == 1:
            proxy.fault("failed", "retrieve_future")

    with pytest.raises(KernelRLError, match="1 steps after the last checkpoint") as told:
        run(policy(), context, learn(loss, optimizer, 2, troubled))
    assert "kernelrl resume" in told.value.fix


def test_what_no_checkpoint_needs_is_deleted_at_the_server(policy, context, server, loss, optimizer, tmp_path) -> None:
    """Core keeps two checkpoints here and removes the files of the older ones."""
    folder = tmp_path / "checkpoints"

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = folder / f"{number:06d}"
        directory.mkdir(parents=True)
        await started.save(directory)
        if number >= 2:
            (folder / f"{number - 2:06d}" / "tinker.json").unlink()

    before = {path.name for path in (server.state / "checkpoints").glob("*")}
    run(policy(checkpoint_days=None), context, learn(loss, optimizer, 6, saved))
    (made,) = {path.name for path in (server.state / "checkpoints").glob("*")} - before
    names = {path.name for path in (server.state / "checkpoints" / made / "weights").glob("*")}
    assert names == {"checkpoint-000003", "checkpoint-000004", "checkpoint-000005"}
    samplers = {path.name for path in (server.state / "checkpoints" / made / "sampler_weights").glob("*")}
    assert len(samplers) <= 6
