"""Parts of a model that a run trains, and the rank and seed of its adapters; in this process, without a server."""

from __future__ import annotations

import copy

import pytest
import torch

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import OptimizerSettings
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.learner import Datum
from kernelrl_tinker_server.engine import Engine
from kernelrl_tinker_server.models import load_served_model
from kernelrl_tinker_server.trained_parts import TrainedParts

ADAM = OptimizerSettings(1e-2, 0.9, 0.95, 1e-8, 0.0, None)
CROSS_ENTROPY = {"loss": "cross_entropy", "bounds": (0.8, 1.2)}
DATA = [Datum((40, 41, 42), (43, 44, 45), (-5.0, -5.0, -5.0), (1.0, 1.0, 1.0))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Engine:
    model, _ = load_served_model("tiny", TorchConfig(warm_start=None), tmp_path_factory.mktemp("state"))
    return Engine(model, rows=1, train_tokens=1000)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory) -> Engine:
    """A small Llama with adapters of rank 4."""
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    from huggingface_model import small_model

    directory = small_model(tmp_path_factory.mktemp("model"))
    options = TorchConfig(model=str(directory), warm_start=None, lora_rank=4)
    model, _ = load_served_model(str(directory), options, tmp_path_factory.mktemp("state"))
    return Engine(model, rows=1, train_tokens=1000)


def trained(engine: Engine, steps: int = 2, **options) -> set[str]:
    """Names of the parameters that change in a new run."""
    engine.create("run", **options)
    before = engine.weights("run")
    for _ in range(steps):
        engine.backward("run", DATA, **CROSS_ENTROPY)
        engine.update("run", ADAM)
    after = engine.weights("run")
    engine.forget("run")
    return {name for name in after if not torch.equal(after[name], before[name])}


@pytest.mark.parametrize(
    ("part", "marks"),
    [("mlp", (".up.", ".down.")), ("attn", (".qkv.", ".out.")), ("unembed", ("embedding.",))],
)
def test_a_part_of_the_bundled_model_can_be_frozen(tiny: Engine, part: str, marks: tuple[str, ...]) -> None:
    whole, without = trained(tiny), trained(tiny, parts=TrainedParts(**{part: False}))
    assert whole - without == {name for name in whole if any(mark in name for mark in marks)} != set()


@pytest.mark.parametrize(("part", "mark"), [("mlp", ".mlp."), ("attn", ".self_attn."), ("unembed", ".lm_head.")])
def test_adapters_of_a_part_can_be_frozen(adapted: Engine, part: str, mark: str) -> None:
    whole, without = trained(adapted), trained(adapted, parts=TrainedParts(**{part: False}))
    assert whole - without == {name for name in whole if mark in name} != set()


def test_gradients_of_frozen_parts_do_not_reach_another_run(tiny: Engine) -> None:
    tiny.create("whole")
    tiny.backward("whole", DATA, **CROSS_ENTROPY)
    expected = tiny.update("whole", ADAM)
    tiny.create("frozen", parts=TrainedParts(mlp=False))
    tiny.backward("frozen", DATA, **CROSS_ENTROPY)
    tiny.create("again")
    tiny.backward("again", DATA, **CROSS_ENTROPY)
    assert tiny.update("again", ADAM) == expected


def test_the_seed_determines_the_adapters(adapted: Engine) -> None:
    def initial(seed: int | None) -> dict[str, torch.Tensor]:
        adapted.create("run", seed=seed)
        return dict(adapted.weights("run"))

    first, same, other, none = (initial(seed) for seed in (3, 3, 4, None))
    random = [name for name in first if ".lora_A." in name]
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in random)
    assert all(torch.equal(none[name], adapted.base[name]) for name in none)
    # lora_B is 0, so every run starts at the weights of the base model.
    assert all(torch.equal(first[name], adapted.base[name]) for name in first if name not in random)


def test_runs_have_adapters_of_their_own_rank(adapted: Engine) -> None:
    """Alternating between runs of other ranks gives the weights of a run that is alone."""

    def step(run: str) -> None:
        adapted.backward(run, DATA, **CROSS_ENTROPY)
        adapted.update(run, ADAM)

    adapted.create("alone", rank=2, seed=5)
    for _ in range(2):
        step("alone")
    expected = dict(adapted.weights("alone"))
    adapted.create("two", rank=2, seed=5)
    adapted.create("seven", rank=7)
    for run in ("two", "seven", "two"):
        step(run)
    weights = adapted.weights("two")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert {weights[name].shape[0] for name in weights if ".lora_A." in name} == {2}
    assert {tensor.shape[1] for name, tensor in adapted.weights("seven").items() if ".lora_B." in name} == {7}
    adapted.create("again", weights, copy.deepcopy(adapted.optimizer("two")))
    step("again")
    step("two")
    continued, original = adapted.weights("again"), adapted.weights("two")
    assert all(torch.equal(continued[name], original[name]) for name in original)


def test_a_new_run_of_another_rank_starts_at_the_base_model(adapted: Engine) -> None:
    distributions = []
    for rank in (None, 3):
        adapted.create("run", rank=rank)
        distributions.append(adapted.prompt_distribution(adapted.weights("run"), (40, 41, 42), 2))
    assert torch.equal(*distributions)


@pytest.mark.parametrize("rank", [0, -1, 10**6])
def test_an_impossible_rank_is_refused(adapted: Engine, tiny: Engine, rank: int) -> None:
    with pytest.raises(UsageError, match=rf"rank={rank}: the adapters of this model have ranks from 1 to "):
        adapted.check_rank(rank)
    tiny.check_rank(rank)  # all weights are trained: the rank has no effect


def test_part_that_a_model_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="train_mlp=False: this model has no parameters that are known as its mlp"):
        TrainedParts(mlp=False).frozen(["layers.0.mixer.weight", "norm_mlp.weight"])
