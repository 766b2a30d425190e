"""The server with a Hugging Face model and LoRA adapters."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import tinker
import torch
from huggingface_model import small_model
from tinker import types

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_tinker_server.local import LocalServer

transformers = pytest.importorskip("transformers")
# Not imported here: peft takes seconds, in each process of pytest-xdist.
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")


def test_a_model_that_cannot_be_loaded_is_one_message_with_the_option(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InfrastructureError, match="--model: cannot load 'nosuch/model'") as failure:
        LocalServer(state=tmp_path, model="nosuch/model").start()
    assert "policy." not in str(failure.value)


def test_adapters_are_trained_sampled_and_saved(tmp_path) -> None:
    model = str(small_model(tmp_path / "model"))
    with (
        LocalServer(state=tmp_path / "state", model=model, arguments=("--lora-rank", "4")) as server,
        tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key) as service,
    ):
        with pytest.raises(tinker.BadRequestError, match="rank=1000: the adapters of this model have ranks from 1 to"):
            service.create_lora_training_client(base_model=model, rank=1000).result()
        training = service.create_lora_training_client(base_model=model, rank=8).result()
        assert training.get_info().lora_rank == 8
        assert training.get_tokenizer().decode([40]) == transformers.AutoTokenizer.from_pretrained(model).decode([40])
        tokens = list(range(40, 60))
        wanted = types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_torch(torch.tensor(tokens[1:])),
                "weights": types.TensorData.from_torch(torch.ones(19)),
            },
        )
        losses = []
        for _ in range(6):
            losses.append(training.forward_backward([wanted], "cross_entropy").result().metrics["loss:sum"])
            training.optim_step(types.AdamParams(learning_rate=3e-2, eps=1e-8)).result()
        assert losses[-1] < losses[0] - 2
        path = training.save_weights_for_sampler("six").result().path
        scored = [
            service.create_sampling_client(**which)
            .result()
            .compute_logprobs(types.ModelInput.from_ints(tokens))
            .result()
            for which in ({"base_model": model}, {"model_path": path})
        ]
        assert sum(scored[1][1:]) > sum(scored[0][1:]) + 2
