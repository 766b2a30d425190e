"""What happens when training requests fail or hang, and where a run begins."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from kernelrl_core.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.types import Message
from kernelrl_core.types.training import SamplingSettings, TrainingSample
from kernelrl_plugin_tinker.policy import TinkerPolicy

ASKED = (Message("user", "Write relu.\n"),)


async def nothing(policy: TinkerPolicy) -> None:
    pass


# --- beginning ------------------------------------------------------------------------------------------------------


def test_saved_state_of_another_model_is_no_start(run, learn, policy, server, tmp_path) -> None:
    """The server knows its model by two names, of which the state was saved under the first."""

    async def save(started: TinkerPolicy):
        await learn()(started)
        return (await started.save(tmp_path))["state"]

    path = run(policy(), save)
    with pytest.raises(UsageError, match=f"{path} is of the model '{server.models[0]}', and policy.model is 'tiny'"):
        run(policy(model="tiny", start_from=path), nothing)


def test_a_run_begins_with_saved_state(run, learn, one_reply, policy, tmp_path) -> None:
    async def save(started: TinkerPolicy):
        await learn()(started)
        return (await started.save(tmp_path))["state"], await one_reply(started)

    path, reply = run(policy(), save)
    assert run(policy(start_from=path), one_reply) == reply
    assert run(policy(), one_reply) != reply
    with pytest.raises(UsageError, match=r"refuses policy.start_from: there is no checkpoint"):
        run(policy(start_from=f"{path}x"), nothing)


# --- training -------------------------------------------------------------------------------------------------------


def test_a_step_is_repeated_with_a_client_made_from_the_last_checkpoint(run, learn, policy, proxy, tmp_path) -> None:
    """The result is that of a run in which nothing failed."""

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = Path(tempfile.mkdtemp(dir=tmp_path, prefix=f"{number}-"))
        if number:
            await started.save(directory)

    async def troubled(started: TinkerPolicy, number: int) -> None:
        await saved(started, number)
        proxy.fault("failed", "retrieve_future", after=1)  # the pass succeeds, the optimizer step does not

    untroubled = run(policy(), learn(3, saved))
    metrics = run(policy(), learn(3, troubled))
    assert untroubled.pop("retried") == 0
    assert metrics.pop("retried") == 1
    assert metrics == untroubled


@pytest.mark.parametrize("path", ["forward_backward", "optim_step", "save_weights_for_sampler"])
def test_a_training_request_that_hangs_is_repeated_with_a_new_client(
    run, learn, policy, proxy, tmp_path, path: str
) -> None:
    """The result is that of a run in which nothing hung."""

    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number:
            await started.save(tmp_path)
            proxy.fault("hang", path)

    untroubled = run(policy(), learn(2))
    metrics = run(policy(train_timeout_s=1.0), learn(2, troubled))
    assert (untroubled.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == untroubled


def test_a_save_that_hangs_after_a_step_says_what_is_lost(run, learn, policy, proxy, tmp_path) -> None:
    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number:
            proxy.fault("hang", "save_weights")
            await started.save(tmp_path)

    with pytest.raises(KernelRLError, match=r"1 steps after .* saving the state took more than 1 s") as told:
        run(policy(train_timeout_s=1.0), learn(2, troubled))
    assert "kernelrl resume" in told.value.fix


def test_a_server_that_begins_no_training_in_time_is_told(run, policy, proxy) -> None:
    """It answers everything else."""
    proxy.fault("hang", "create_model", 50)
    with pytest.raises(InfrastructureError, match=r"a training client for .* took more than 1 s") as told:
        run(policy(train_timeout_s=1.0, retries=1), nothing)
    assert proxy.seen.count("/api/v1/create_model") == 2
    assert "policy.train_timeout_s" in told.value.fix


def test_a_checkpoint_that_hangs_once_is_loaded(run, learn, policy, proxy, tmp_path) -> None:
    async def loaded(started: TinkerPolicy, number: int) -> None:
        if number:
            state = await started.save(tmp_path)
            proxy.fault("hang", "load_weights")
            await started.load(state, tmp_path)

    untroubled = run(policy(), learn(2))
    metrics = run(policy(train_timeout_s=1.0), learn(2, loaded))
    assert (untroubled.pop("retried"), metrics.pop("retried")) == (0, 1)
    assert metrics == untroubled


@pytest.mark.parametrize("failed", ["first pass", "second pass", "the rest"])
def test_passes_before_the_rest_of_a_step_end_alike_whatever_fails(
    run, policy, proxy, make_update, failed: str
) -> None:
    """Gradients of 2 and 1 of 5 samples come first; the result is that of a run in which nothing failed."""

    def learning(trouble: str):
        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED).tokens
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
            return metrics, await started.sample(started.render(ASKED), sampled)

        return work

    sampled = SamplingSettings(16, 1.0, 1.0, -1, (), 5)
    untroubled = run(policy(), learning(""))
    assert run(policy(), learning(failed)) == untroubled


def test_a_step_in_passes_is_the_step_but_for_rounding(run, policy, make_update) -> None:
    def learning(cuts):
        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED).tokens
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


def test_steps_after_the_last_checkpoint_are_never_lost_in_silence(run, learn, policy, proxy) -> None:
    async def troubled(started: TinkerPolicy, number: int) -> None:
        if number == 1:
            proxy.fault("failed", "retrieve_future")

    with pytest.raises(KernelRLError, match="1 steps after the last checkpoint") as told:
        run(policy(), learn(2, troubled))
    assert "kernelrl resume" in told.value.fix


@pytest.fixture
def interrupted(proxy, make_update, sampling, tmp_path):
    """The second of two steps: passes ahead, log-probabilities, update. One request ends badly; the step goes on."""

    def made(ending: str, call: str, *, saved: bool):
        async def called(name: str, request):
            if name != call:
                return await request()
            proxy.fault("failed" if ending == "fails" else "hang", "retrieve_future")
            if ending == "fails":
                return await request()
            seen, task = len(proxy.seen), asyncio.create_task(request())
            for _ in range(500):
                await asyncio.sleep(0.01)
                if any(path.endswith("retrieve_future") for path in proxy.seen[seen:]):
                    break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return None if name == "backward" else await request()

        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED)
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
def test_a_request_that_ends_badly_after_a_checkpoint_changes_nothing(
    run, policy, interrupted, ending: str, call: str
) -> None:
    untroubled = run(policy(), interrupted("", "", saved=True))
    assert run(policy(), interrupted(ending, call, saved=True)) == untroubled


@pytest.mark.parametrize("call", ["backward", "logprobs", "update"])
@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
def test_a_request_that_ends_badly_later_says_what_is_lost(run, policy, interrupted, ending: str, call: str) -> None:
    with pytest.raises(KernelRLError, match="1 steps after the last checkpoint") as told:
        run(policy(), interrupted(ending, call, saved=False))
    assert "kernelrl resume" in told.value.fix


def test_gradients_of_a_step_that_was_given_up_are_not_learnt_from(run, policy, make_update, sampling) -> None:
    def learning(given_up: bool):
        async def work(started: TinkerPolicy):
            prompt = started.render(ASKED)
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
    """Names that were saved at the server since the test began."""
    before = {path.name for path in (server.state / "checkpoints").glob("*")}

    def made(kind: str) -> list[str]:
        found = (server.state / "checkpoints").glob(f"*/{kind}/*")
        return sorted(path.name for path in found if path.parents[1].name not in before)

    return made


@pytest.fixture
def saving(tmp_path: Path):
    """Saves before every step; like core with two checkpoints to keep, it removes the files of older ones."""
    folder = tmp_path / "checkpoints"

    async def saved(started: TinkerPolicy, number: int) -> None:
        directory = folder / f"{number:06d}"
        directory.mkdir(parents=True)
        await started.save(directory)
        if number >= 2:
            (folder / f"{number - 2:06d}" / "tinker.json").unlink()

    return saved


def test_what_no_checkpoint_needs_is_deleted_at_the_server(run, learn, policy, at_server, saving) -> None:
    run(policy(checkpoint_days=None), learn(6, saving))
    assert at_server("weights") == ["checkpoint-000003", "checkpoint-000004", "checkpoint-000005"]
    assert len(at_server("sampler_weights")) <= 6


def test_what_earlier_processes_saved_is_deleted_at_the_server_too(
    run, learn, policy, at_server, saving, tmp_path
) -> None:
    """The first one ends after step 4, which no checkpoint holds; the second goes on from checkpoint 3."""
    run(policy(checkpoint_days=None), learn(4, saving))
    assert "step-000004" in at_server("sampler_weights")
    newest = tmp_path / "checkpoints" / "000003"

    async def resumed(started: TinkerPolicy) -> None:
        await started.load(json.loads((newest / "tinker.json").read_text()), newest)
        await learn(5, lambda policy, number: saving(policy, number + 4))(started)

    run(policy(checkpoint_days=None), resumed)
    assert at_server("weights") == ["checkpoint-000005", "checkpoint-000006", "checkpoint-000007"]
    assert at_server("sampler_weights") == [f"step-{number:06d}" for number in (5, 6, 7, 8)]
