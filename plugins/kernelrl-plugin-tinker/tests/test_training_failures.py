"""Failed and hung training requests, `start_from`, and deletion of saved paths."""

from __future__ import annotations

import asyncio
import copy
import json
import tempfile
from pathlib import Path

import pytest

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.api.policies import Message, SamplingSettings, TrainingSample
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_testing.waiting import wait_until_async

MESSAGES = (Message("user", "Write relu.\n"),)
SHORT_S = 3.0
"""Time limit of requests: enough for the others on a busy machine, as the one that hangs takes all of it."""


async def nothing(policy: TinkerPolicy) -> None:
    pass


# --- start_from -----------------------------------------------------------------------------------------------------


def test_start_from_refuses_weights_of_another_model(run, learn, policy, server, tmp_path) -> None:
    """The server has two names for its model; the state was saved under the first one."""

    async def save(started: TinkerPolicy):
        await learn()(started)
        return (await started.save(tmp_path))["state"]

    path = run(policy(), save)
    with pytest.raises(UsageError, match=f"{path} is of the model '{server.models[0]}', but policy.model is 'tiny'"):
        run(policy(model="tiny", start_from=path), nothing)


def test_a_run_starts_from_saved_weights(run, learn, one_reply, policy, tmp_path) -> None:
    async def save(started: TinkerPolicy):
        await learn()(started)
        return (await started.save(tmp_path))["state"], await one_reply(started)

    path, reply = run(policy(), save)
    assert run(policy(start_from=path), one_reply) == reply
    assert run(policy(), one_reply) != reply
    with pytest.raises(UsageError, match=r"refuses policy.start_from: there is no checkpoint"):
        run(policy(start_from=f"{path}x"), nothing)


def test_a_run_begins_with_the_checkpoint_of_another_run(run, learn, one_reply, policy, tmp_path) -> None:
    """Its reference policy is the weights of that checkpoint, and its steps are counted from 0."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    async def save(started: TinkerPolicy):
        await learn(2)(started)
        return await started.save(first), await one_reply(started)

    state, reply = run(policy(), save)

    async def begin(started: TinkerPolicy):
        await started.begin_from(state, first)
        same = await one_reply(started)
        return same, await started.save(second)

    same, saved = run(policy(), begin)
    assert same == reply
    assert saved["steps"] == 0
    assert saved["first_sampler"] == saved["sampler"] is not None
    with pytest.raises(UsageError, match="is of the model"):
        run(policy(), lambda started: started.begin_from({**state, "model": "other"}, first))


# --- training -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed():
    """Results without a failure, with which several tests compare theirs; each is computed once."""
    results = {}

    def result(name: str, compute):
        if name not in results:
            results[name] = compute()
        return copy.deepcopy(results[name])

    return result


def test_a_failed_step_is_repeated_with_a_client_from_the_last_checkpoint(run, learn, policy, proxy, tmp_path) -> None:
    """The result equals that of a run without failures."""

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = Path(tempfile.mkdtemp(dir=tmp_path, prefix=f"{number}-"))
        if number:
            await started.save(directory)

    async def with_failure(started: TinkerPolicy, number: int) -> None:
        await saved(started, number)
        proxy.fault("failed", "retrieve_future", after=1)  # the pass succeeds, the optimizer step does not

    expected = run(policy(), learn(3, saved))
    metrics = run(policy(), learn(3, with_failure))
    assert expected.pop("retried") == 0
    assert metrics.pop("retried") == 1
    assert metrics == expected


@pytest.mark.parametrize("path", ["forward_backward", "optim_step", "save_weights_for_sampler"])
def test_a_hung_training_request_is_repeated_with_a_new_client(
    run, learn, policy, proxy, tmp_path, undisturbed, path: str
) -> None:
    """The result equals that of a run without hung requests."""

    async def with_failure(started: TinkerPolicy, number: int) -> None:
        if number:
            await started.save(tmp_path)
            proxy.fault("hang", path)

    expected = undisturbed("two steps", lambda: run(policy(), learn(2)))
    metrics = run(policy(train_timeout_s=SHORT_S), learn(2, with_failure))
    assert (expected.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == expected


def test_a_hung_save_after_a_step_reports_the_lost_steps(run, learn, policy, proxy, tmp_path) -> None:
    async def with_failure(started: TinkerPolicy, number: int) -> None:
        if number:
            proxy.fault("hang", "save_weights")
            await started.save(tmp_path)

    with pytest.raises(KernelRLError, match=r"1 steps after .* saving the state took more than 3 s") as failure:
        run(policy(train_timeout_s=SHORT_S), learn(2, with_failure))
    assert "kernelrl resume" in failure.value.fix


def test_a_hung_creation_of_the_training_client_is_reported(run, policy, proxy) -> None:
    """The server responds to all other requests."""
    proxy.fault("hang", "create_model", 50)
    with pytest.raises(InfrastructureError, match=r"a training client for .* took more than 3 s") as failure:
        run(policy(train_timeout_s=SHORT_S, retries=1), nothing)
    assert proxy.seen.count("/api/v1/create_model") == 2
    assert "policy.train_timeout_s" in failure.value.fix


def test_a_load_that_hangs_once_is_repeated(run, learn, policy, proxy, tmp_path, undisturbed) -> None:
    async def loaded(started: TinkerPolicy, number: int) -> None:
        if number:
            state = await started.save(tmp_path)
            proxy.fault("hang", "load_weights")
            await started.load(state, tmp_path)

    expected = undisturbed("two steps", lambda: run(policy(), learn(2)))
    metrics = run(policy(train_timeout_s=SHORT_S), learn(2, loaded))
    assert (expected.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == expected


@pytest.mark.parametrize("failed", ["first pass", "second pass", "the rest"])
def test_a_failure_of_any_pass_of_a_streamed_step_does_not_change_the_result(
    run, policy, proxy, make_update, undisturbed, failed: str
) -> None:
    """Passes over 2 and 1 of 5 samples come before the update; the result equals that of a run without failures."""

    def learning(trouble: str):
        async def work(started: TinkerPolicy):
            prompt = started.render(MESSAGES).tokens
            samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(5))
            step = make_update(samples, accumulated=(2, 1))
            for number, (begin, end) in enumerate(((0, 2), (2, 3))):
                if trouble == ("first pass", "second pass")[number]:
                    proxy.fault("failed", "retrieve_future")
                await started.backward(step.substeps[0][begin:end], step.loss)
            if trouble == "the rest":
                proxy.fault("failed", "retrieve_future", after=1)
            metrics = dict(await started.update(step))
            metrics.pop("retried")
            return metrics, await started.sample(started.render(MESSAGES), sampled)

        return work

    sampled = SamplingSettings(16, 1.0, 1.0, -1, (), 5)
    expected = undisturbed("streamed", lambda: run(policy(), learning("")))
    assert run(policy(), learning(failed)) == expected


def test_a_streamed_step_equals_a_whole_step_up_to_rounding(run, policy, make_update) -> None:
    def learning(cuts):
        async def work(started: TinkerPolicy):
            prompt = started.render(MESSAGES).tokens
            samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(5))
            step = make_update(samples, substeps=2, accumulated=[end - begin for begin, end in cuts])
            for begin, end in cuts:
                await started.backward(step.substeps[0][begin:end], step.loss)
            return dict(await started.update(step))

        return work

    whole = run(policy(), learning(()))
    parted = run(policy(), learning(((0, 1), (1, 3))))
    for name in ("loss", "grad_norm", "ratio_mean", "tokens"):
        assert parted[name] == pytest.approx(whole[name], rel=1e-5)


def test_a_failure_that_would_lose_steps_is_an_error(run, learn, policy, proxy) -> None:
    async def with_failure(started: TinkerPolicy, number: int) -> None:
        if number == 1:
            proxy.fault("failed", "retrieve_future")

    with pytest.raises(KernelRLError, match="1 steps after the last checkpoint") as failure:
        run(policy(), learn(2, with_failure))
    assert "kernelrl resume" in failure.value.fix


@pytest.fixture
def interrupted(proxy, make_update, sampling, tmp_path):
    """The second of two steps: streamed passes, log-probabilities, update. One request fails or is cancelled."""

    def made(ending: str, call: str, *, saved: bool):
        async def called(name: str, request):
            if name != call:
                return await request()
            proxy.fault("failed" if ending == "fails" else "hang", "retrieve_future")
            if ending == "fails":
                return await request()
            seen, task = len(proxy.seen), asyncio.create_task(request())
            await wait_until_async(lambda: any(path.endswith("retrieve_future") for path in proxy.seen[seen:]))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return None if name == "backward" else await request()

        async def work(started: TinkerPolicy):
            prompt = started.render(MESSAGES)
            samples = tuple(
                TrainingSample(str(a), prompt.tokens, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(5)
            )
            await started.update(make_update(samples))
            if saved:
                await started.save(Path(tempfile.mkdtemp(dir=tmp_path)))
            step = make_update(samples, 1, accumulated=(2, 1))
            await called("backward", lambda: started.backward(step.substeps[0][:2], step.loss))
            await started.backward(step.substeps[0][2:3], step.loss)
            rows = await called("logprobs", lambda: started.logprobs(samples, "current"))
            metrics = dict(await called("update", lambda: started.update(step)))
            del metrics["retried"]
            return rows, metrics, await started.sample(prompt, sampling(5))

        return work

    return made


@pytest.mark.parametrize("call", ["backward", "logprobs", "update"])
@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
def test_a_failed_or_cancelled_request_after_a_checkpoint_does_not_change_the_result(
    run, policy, interrupted, undisturbed, ending: str, call: str
) -> None:
    expected = undisturbed("with log-probabilities", lambda: run(policy(), interrupted("", "", saved=True)))
    assert run(policy(), interrupted(ending, call, saved=True)) == expected


@pytest.mark.parametrize("call", ["backward", "logprobs", "update"])
@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
def test_a_failed_or_cancelled_request_without_a_checkpoint_reports_the_lost_steps(
    run, policy, interrupted, ending: str, call: str
) -> None:
    with pytest.raises(KernelRLError, match="1 steps after the last checkpoint") as failure:
        run(policy(), interrupted(ending, call, saved=False))
    assert "kernelrl resume" in failure.value.fix


def test_gradients_of_an_abandoned_step_are_discarded(run, policy, make_update, sampling) -> None:
    def learning(given_up: bool):
        async def work(started: TinkerPolicy):
            prompt = started.render(MESSAGES)
            samples = tuple(
                TrainingSample(str(a), prompt.tokens, (65 + a, 66), (-5.0, -5.0), 2.0 - a) for a in range(3)
            )
            step = make_update(samples)
            if given_up:
                await started.backward(step.substeps[0][:1], step.loss)
            return dict(await started.update(step)), await started.sample(prompt, sampling(5))

        return work

    assert run(policy(), learning(True)) == run(policy(), learning(False))


@pytest.fixture
def at_server(server):
    """Lists the names saved at the server since the start of the test."""
    before = {path.name for path in (server.state / "checkpoints").glob("*")}

    def made(kind: str) -> list[str]:
        found = (server.state / "checkpoints").glob(f"*/{kind}/*")
        return sorted(path.name for path in found if path.parents[1].name not in before)

    return made


@pytest.fixture
def saving(tmp_path: Path):
    """Saves before every step and removes older checkpoints but two, as the core does."""
    folder = tmp_path / "checkpoints"

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = folder / f"{number:06d}"
        directory.mkdir(parents=True)
        await started.save(directory)
        if number >= 2:
            (folder / f"{number - 2:06d}" / "tinker.json").unlink()

    return saved


def test_paths_that_no_checkpoint_needs_are_deleted_at_the_server(run, learn, policy, at_server, saving) -> None:
    run(policy(checkpoint_days=None), learn(6, saving))
    assert at_server("weights") == ["checkpoint-000003", "checkpoint-000004", "checkpoint-000005"]
    assert len(at_server("sampler_weights")) <= 6


def test_paths_of_earlier_processes_are_deleted_at_the_server(run, learn, policy, at_server, saving, tmp_path) -> None:
    """The first process ends after step 4, which has no checkpoint; the second one continues from checkpoint 3."""
    run(policy(checkpoint_days=None), learn(4, saving))
    assert "step-000004" in at_server("sampler_weights")
    newest = tmp_path / "checkpoints" / "000003"

    async def resumed(started: TinkerPolicy) -> None:
        await started.load(json.loads((newest / "tinker.json").read_text()), newest)
        await learn(5, lambda policy, number: saving(policy, number + 4))(started)

    run(policy(checkpoint_days=None), resumed)
    assert at_server("weights") == ["checkpoint-000005", "checkpoint-000006", "checkpoint-000007"]
    assert at_server("sampler_weights") == [f"step-{number:06d}" for number in (5, 6, 7, 8)]
