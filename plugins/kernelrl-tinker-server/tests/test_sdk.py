"""Tinker's SDK with the server, over HTTP."""

from __future__ import annotations

import inspect
import json
import math

import httpx
import numpy as np
import pytest
import tinker
import torch
from any_sdk import ready, rest_client, served_models, service_client
from tinker import types

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_tinker_server.local import LocalServer
from kernelrl_tinker_server.store import CheckpointPath, Store

PROMPT = list(b"write a kernel")
REPLY = list(b"def relu(x)")
BOUNDS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}


def datum(advantage: float = 1.0, logprobs: list[float] | None = None) -> types.Datum:
    tokens = PROMPT + REPLY
    context = [0.0] * (len(PROMPT) - 1)
    given = logprobs or [-5.0] * len(REPLY)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_torch(torch.tensor(tokens[1:])),
            "logprobs": types.TensorData.from_torch(torch.tensor(context + given)),
            "advantages": types.TensorData.from_torch(torch.tensor(context + [advantage] * len(REPLY))),
        },
    )


def supervised(tokens: list[int], weights: list[float]) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_torch(torch.tensor(tokens[1:])),
            "weights": types.TensorData.from_torch(torch.tensor(weights)),
        },
    )


def logprobs(result, index: int = 0) -> np.ndarray:
    return result.loss_fn_outputs[index]["logprobs"].to_torch().numpy()


def sampled(client, seed: int = 7, n: int = 1, **changes):
    params = types.SamplingParams(**({"max_tokens": 12, "seed": seed, "temperature": 1.0} | changes))
    return client.sample(types.ModelInput.from_ints(PROMPT), n, params).result()


def test_the_server_provides_the_tokenizer_of_its_own_model(server) -> None:
    """`tiny` has one token per byte, so its vocabulary has at least 256 entries."""
    address = f"{server.base_url}/kernelrl/tokenizer"
    files = httpx.get(address, params={"model": "tiny"}).json()["files"]
    assert set(files) == {"tokenizer.json", "tokenizer_config.json"}
    assert len(json.loads(files["tokenizer.json"])["model"]["vocab"]) >= 256
    assert httpx.get(address, params={"model": "Qwen/Qwen3-8B"}).status_code == 404
    assert httpx.get(address).status_code == 422


def test_the_server_lists_capabilities_outside_tinkers_api(server) -> None:
    assert httpx.get(f"{server.base_url}/kernelrl/capabilities").json() == {
        "ratios": ["sequence", "token"],
        "seed_bits": 64,
    }


def test_the_sdk_finds_the_model_and_its_tokenizer(server, service) -> None:
    rest = rest_client(server, service)
    supported = served_models(rest, service)
    assert [model.model_name for model in supported] == list(server.models)
    assert supported[0].max_context_length == 2048
    training = ready(service.create_lora_training_client(base_model="tiny", rank=8))
    tokenizer = training.get_tokenizer()
    assert tokenizer.decode(tokenizer.encode("x = 1\n")) == "x = 1\n"
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert shown == "<|user|>hi<|end|><|assistant|>"


def test_training_increases_the_probability_of_a_reply_with_a_positive_advantage(service) -> None:
    training = ready(service.create_lora_training_client(base_model="tiny", rank=8))
    first = training.forward_backward([datum()], "importance_sampling").result()
    step = training.optim_step(types.AdamParams(learning_rate=1e-2, eps=1e-8)).result()
    second = training.forward_backward([datum()], "importance_sampling").result()
    before, after = logprobs(first)[len(PROMPT) - 1 :], logprobs(second)[len(PROMPT) - 1 :]
    assert after.sum() > before.sum() + 1
    assert step.metrics["grad_norm:mean"] > 0
    # The loss is -sum exp(trainer - sampler log-probability) * advantage.
    assert first.metrics["loss:sum"] == pytest.approx(-np.exp(before + 5.0).sum(), rel=1e-5)


def test_a_forward_pass_returns_every_token_and_adds_no_gradient(service) -> None:
    training = ready(service.create_lora_training_client(base_model="tiny"))
    tokens = PROMPT + REPLY
    shown = logprobs(training.forward([supervised(tokens, [1.0] * (len(tokens) - 1))], "cross_entropy").result())
    client = ready(training.save_weights_and_get_sampling_client())
    scored = client.compute_logprobs(types.ModelInput.from_ints(tokens)).result()
    assert scored[0] is None
    assert shown == pytest.approx(np.array(scored[1:]), abs=1e-5)
    assert training.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm:mean"] == 0


def test_a_custom_loss_equals_the_server_s_loss(service) -> None:
    tokens = PROMPT + REPLY
    weights = [0.0] * (len(PROMPT) - 1) + [1.0] * len(REPLY)
    data = [supervised(tokens, weights)]

    def own(given, rows):
        return -(rows[0] * torch.tensor(weights)).sum(), {}

    norms = []
    for way in ("own", "server"):
        training = ready(service.create_lora_training_client(base_model="tiny"))
        if way == "own":
            training.forward_backward_custom(data, own).result()
        else:
            training.forward_backward(data, "cross_entropy").result()
        norms.append(training.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm:mean"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_two_runs_are_independent(service) -> None:
    """The accumulated gradients of one run are kept while the other is updated."""
    adam = types.AdamParams(learning_rate=1e-2, eps=1e-8)

    def alone():
        run = ready(service.create_lora_training_client(base_model="tiny"))
        run.forward_backward([datum()], "importance_sampling").result()
        run.optim_step(adam).result()
        return logprobs(run.forward_backward([datum()], "importance_sampling").result())

    expected = alone()
    a, b = (ready(service.create_lora_training_client(base_model="tiny")) for _ in range(2))
    a.forward_backward([datum()], "importance_sampling").result()
    b.forward_backward([datum(-1.0)], "importance_sampling").result()
    b.optim_step(adam).result()
    a.optim_step(adam).result()
    assert np.array_equal(logprobs(a.forward_backward([datum()], "importance_sampling").result()), expected)


def test_a_reply_is_a_function_of_prompt_and_seed(service) -> None:
    client = ready(service.create_sampling_client(base_model="tiny"))
    alone = sampled(client).sequences[0]
    among = [
        client.sample(types.ModelInput.from_ints(PROMPT), 1, types.SamplingParams(max_tokens=12, seed=seed))
        for seed in range(20)
    ]
    assert list(among[7].result().sequences[0].tokens) == list(alone.tokens)
    assert len({tuple(future.result().sequences[0].tokens) for future in among}) > 15
    both = sampled(client, n=2).sequences
    assert list(both[0].tokens) == list(alone.tokens) != list(both[1].tokens)
    greedy = [list(sampled(client, seed=seed, temperature=0.0).sequences[0].tokens) for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_a_reply_ends_at_the_requested_stop_tokens(service) -> None:
    client = ready(service.create_sampling_client(base_model="tiny"))
    free = list(sampled(client, stop=[]).sequences[0].tokens)
    assert len(free) == 12
    cut = sampled(client, stop=[free[4]]).sequences[0]
    assert list(cut.tokens) == free[: free.index(free[4]) + 1]
    assert cut.stop_reason == "stop"
    assert sampled(client, stop=[]).sequences[0].stop_reason == "length"


def test_checkpoints_survive_a_crash_of_the_server(tmp_path) -> None:
    adam = types.AdamParams(learning_rate=1e-2, eps=1e-8)
    server = LocalServer(state=tmp_path / "state")
    server.start()
    with service_client(server) as service:
        training = ready(service.create_lora_training_client(base_model="tiny"))
        for _ in range(2):
            training.forward_backward([datum()], "ppo", BOUNDS).result()
            training.optim_step(adam).result()
        state = training.save_state("two", ttl_seconds=3600).result().path
        weights = training.save_weights_for_sampler("two").result().path
        before = sampled(ready(service.create_sampling_client(model_path=weights))).sequences[0]
        training.forward_backward([datum()], "ppo").result()
        training.optim_step(adam).result()
        expected = logprobs(training.forward_backward([datum()], "ppo").result())
        server.kill()
        server.start()
    with service_client(server) as service:
        again = ready(service.create_training_client_from_state_with_optimizer(state))
        again.forward_backward([datum()], "ppo").result()
        again.optim_step(adam).result()
        assert np.array_equal(logprobs(again.forward_backward([datum()], "ppo").result()), expected)
        after = sampled(ready(service.create_sampling_client(model_path=weights))).sequences[0]
        assert list(after.tokens) == list(before.tokens)
        rest = rest_client(server, service)
        rows = {row.tinker_path: row for row in rest.list_user_checkpoints().result().checkpoints}
        assert rows[state].expires_at is not None
        assert rows[weights].expires_at is None
        rest.delete_checkpoint_from_tinker_path(state).result()
        with pytest.raises(tinker.NotFoundError):
            rest.delete_checkpoint_from_tinker_path(state).result()
        with pytest.raises(Exception, match="there is no checkpoint"):
            ready(service.create_training_client_from_state_with_optimizer(state))
    server.stop()


def test_an_unknown_model_is_refused_with_the_known_ones(service) -> None:
    with pytest.raises(tinker.NotFoundError, match="did you mean 'tiny'"):
        ready(service.create_lora_training_client(base_model="tinny"))


def test_a_prompt_longer_than_the_context_is_a_bad_request(service) -> None:
    client = ready(service.create_sampling_client(base_model="tiny"))
    with pytest.raises(tinker.BadRequestError, match=r"the prompt has 3000 tokens; .* 2048\\nfix: send at most 2047"):
        client.sample(types.ModelInput.from_ints([1] * 3000), 1, types.SamplingParams(max_tokens=4)).result()


def test_targets_need_not_be_the_shifted_input(service) -> None:
    """With a weight only on one place, its log-probability is the one of the shifted datum with that last token."""
    training = ready(service.create_lora_training_client(base_model="tiny"))
    tokens = PROMPT + REPLY
    weights = [0.0] * (len(tokens) - 1)
    weights[20] = 1.0
    shifted = supervised([*tokens[:21], 7], weights[:21])
    other = supervised(tokens, weights)
    targets = tokens[1:]
    targets[20] = 7
    other.loss_fn_inputs["target_tokens"] = types.TensorData.from_torch(torch.tensor(targets))
    losses = [
        training.forward_backward([one], "cross_entropy").result().metrics["loss:sum"] for one in (shifted, other)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_several_targets_of_a_token_are_weighted(service) -> None:
    """`cross_entropy` with the most probable tokens of the prompt as targets: Tinker's form of distillation."""
    training = ready(service.create_lora_training_client(base_model="tiny"))
    client = ready(training.save_weights_and_get_sampling_client())
    tokens = PROMPT + REPLY
    sampled_ = client.sample(
        types.ModelInput.from_ints(tokens), 1, types.SamplingParams(max_tokens=1), topk_prompt_logprobs=3
    ).result()
    top = sampled_.topk_prompt_logprobs[1:]
    targets, given = (torch.tensor([[pair[part] for pair in row] for row in top]) for part in (0, 1))
    weights = torch.zeros_like(given)
    weights[-1] = torch.tensor([0.5, 0.25, 0.25])
    data = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": targets, "weights": weights},
    )
    trained = training.forward_backward([data], "cross_entropy").result()
    assert trained.metrics["loss:sum"] == pytest.approx(-float((weights * given).sum()), rel=1e-4)
    assert logprobs(trained).shape == (len(tokens) - 1, 3)
    assert logprobs(trained)[-1] == pytest.approx(given[-1].numpy(), abs=1e-4)
    forward = training.forward([data], "cross_entropy").result()
    assert logprobs(forward) == pytest.approx(given.numpy(), abs=1e-4)
    assert forward.metrics["loss:sum"] == pytest.approx(trained.metrics["loss:sum"], rel=1e-5)


@pytest.mark.skipif(
    "record_stability_info"
    not in inspect.signature(tinker.TrainingClient.save_weights_and_get_sampling_client).parameters,
    reason="this SDK has no such option",
)
def test_samples_for_stable_reinforce_are_refused_before_training(service) -> None:
    training = ready(service.create_lora_training_client(base_model="tiny"))
    client = ready(training.save_weights_and_get_sampling_client(record_stability_info=True))
    with pytest.raises(
        tinker.BadRequestError, match=r"stable_reinforce.*\\nfix: train with loss_fn=importance_sampling"
    ):
        sampled(client)


def test_a_token_outside_the_vocabulary_is_a_bad_request(service) -> None:
    training = ready(service.create_lora_training_client(base_model="tiny"))
    with pytest.raises(tinker.BadRequestError, match="token 70000 is not in the model's vocabulary"):
        training.forward_backward([supervised([1, 2, 70000], [1.0, 1.0])], "cross_entropy").result()
    client = ready(service.create_sampling_client(base_model="tiny"))
    with pytest.raises(tinker.BadRequestError, match="token 70000 is not in the model's vocabulary"):
        client.compute_logprobs(types.ModelInput.from_ints([1, 70000])).result()


def test_an_expired_checkpoint_is_removed_at_a_restart(tmp_path) -> None:
    store, path = Store(tmp_path), CheckpointPath("s1:train:0", "weights", "a")
    about = {"model": "tiny", "rank": 8, "time": 0.0, "expires": 1.0, "user_metadata": None}
    store.save(path, {"w": torch.zeros(2)}, {}, about)
    assert list(store.checkpoints()) == []
    store.sweep()
    assert not store.folder(path).exists()


def test_a_server_reachable_from_other_machines_needs_a_key(tmp_path) -> None:
    with pytest.raises(InfrastructureError, match="needs a key"):
        LocalServer(state=tmp_path, arguments=("--host", "0.0.0.0")).start()


def test_losses_agree_with_their_formula(service) -> None:
    training = ready(service.create_lora_training_client(base_model="tiny"))
    now = logprobs(training.forward_backward([datum()], "importance_sampling").result())[len(PROMPT) - 1 :]
    given = [float(x) - math.log(1.5) for x in now]  # every ratio is 1.5
    ppo = training.forward_backward([datum(1.0, given)], "ppo", BOUNDS).result().metrics["loss:sum"]
    cispo = training.forward_backward([datum(1.0, given)], "cispo", BOUNDS).result().metrics["loss:sum"]
    marked = datum(1.0, given)
    mask = torch.tensor([0.0] * (len(PROMPT) - 1) + [1.0] * len(REPLY))
    marked.loss_fn_inputs["sequence_ratio_mask"] = types.TensorData.from_torch(mask)
    gspo = training.forward_backward([marked], "gspo", BOUNDS).result().metrics["loss:sum"]
    dro = training.forward_backward([datum(1.0, given)], "dro", {"beta": 0.5}).result().metrics["loss:sum"]
    assert ppo == pytest.approx(-1.28 * len(REPLY), rel=1e-4)
    assert gspo == pytest.approx(ppo, rel=1e-4)
    assert dro == pytest.approx(0.25 * math.log(1.5) ** 2 * len(REPLY) - float(now.sum()), rel=1e-4)
    assert cispo == pytest.approx(-1.28 * float(now.sum()), rel=1e-4)
