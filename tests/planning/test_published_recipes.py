"""Recipes of published methods: each value is that of the publication, and each recipe loads with its plugins."""

from __future__ import annotations

import json
import os
import re
from decimal import ROUND_UP, Context, Decimal
from pathlib import Path

import attrs
import pytest

from kernelrl_core.environment.scoring import WeightedReward, score
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.planning.plan import plan, plan_notes
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.sources.yaml import parse_value
from kernelrl_core.types import (
    BuildStatus,
    Candidate,
    Evaluation,
    Extraction,
    Outcome,
)
from kernelrl_testing.values import make_turn

RECIPES = Path(__file__).parents[2] / "recipes"
NAMES = ("kevin", "kevin_triton", "kevin_raicl", "kevin_triton_raicl", "single_turn", "dr_kernel", "hip_multi_turn")


def load(name: str, *overrides: str) -> Recipe:
    return load_recipe(str(RECIPES / f"{name}.yaml"), overrides, registry=registry()).recipe


def total(recipe: Recipe, outcome: Outcome, speedup: float | None = None, share: float | None = None) -> float:
    evaluation = Evaluation(outcome, build=BuildStatus.BUILT, speedup=speedup, own_kernel_share=share)
    turn = make_turn(outcome, extraction=Extraction(Candidate("x", "cuda")), evaluation=evaluation)
    rewards = [
        WeightedReward(name, use.weight, registry().make("rewards", use), use.options.bounds(), use.use)
        for name, use in recipe.rewards.items()
    ]
    return score(turn, rewards, recipe.verdicts).total


@pytest.mark.parametrize("name", [*NAMES, "raicl"])
def test_a_published_recipe_loads_and_documents_source_needs_and_cost(name: str) -> None:
    assert load(name).train.loss == ("importance_sampling" if name == "raicl" else "ppo")
    header = (RECIPES / f"{name}.yaml").read_text().split("\n\n")[0]
    assert header.startswith(f"# {name}: ")
    assert [
        part for part in ("# Source ", "# What it does", "# Needs ", "# Costs ", "# Expect ") if part not in header
    ] == []
    assert f"kernelrl run {name} --dry-run" in header


@pytest.mark.parametrize("name", NAMES)
def test_correct_scores_above_wrong_and_fast_above_slow(name: str) -> None:
    recipe = load(name)
    wrong = [o for o in Outcome if o not in (Outcome.CORRECT, Outcome.INFRA_ERROR)]
    totals = [total(recipe, Outcome.CORRECT, speedup, 0.0) for speedup in (None, 0.01, 0.5, 1.0, 2.0, 1e3)]
    assert max(total(recipe, outcome, 9.0, 1.0) for outcome in wrong) == 0.0
    assert totals == sorted(totals)
    assert totals[0] > 0.0
    assert totals[1] < totals[4]


@pytest.mark.parametrize(
    ("name", "samples", "gpu"),
    [
        ("kevin", 512, "an NVIDIA GPU"),
        ("kevin_triton", 512, "a GPU"),
        ("kevin_raicl", 512, "an NVIDIA GPU"),
        ("kevin_triton_raicl", 512, "a GPU"),
        ("raicl", 32, "a GPU"),
        ("single_turn", 128, "a GPU"),
        ("dr_kernel", 768, "a GPU"),
        ("hip_multi_turn", 512, "an AMD GPU"),
    ],
)
def test_a_dry_run_has_no_prerequisites_and_lists_those_of_the_run(
    name: str, samples: int, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_BASE_URL", "KERNELBENCH_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernelrl_core.interfaces.requirements.gpu_vendors", frozenset)
    facts = plan(name, load(name), registry())
    assert facts["samples_per_step"] == samples
    missing = "\n".join(facts["missing"])
    assert f"{gpu};" in missing
    assert "TINKER_API_KEY" in missing
    assert "git clone https://github.com/ScalingIntelligence/KernelBench" in missing
    assert ("kernel_rag_index; fix: kernelrl index build --corpora" in missing) == name.endswith("raicl")


@pytest.mark.parametrize("name", ["single_turn_modal", "kevin_modal"])
def test_a_recipe_with_modal_needs_a_token_and_neither_gpu_nor_compiler(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MODAL_TOKEN_ID", "KERNELBENCH_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    missing = "\n".join(plan(name, load(name), registry())["missing"])
    assert "a Modal token; fix: modal token new" in missing
    assert "GPU" not in missing
    assert "nvcc" not in missing


@pytest.mark.parametrize(("name", "timeout_s"), [("single_turn_modal", 60.0), ("kevin_modal", 300.0)])
def test_gpu_and_limits_are_those_of_the_published_client(name: str, timeout_s: float) -> None:
    recipe = load(name)
    options = recipe.evaluator.options
    assert (recipe.evaluator.use, options.gpu) == ("modal", "A100-40GB")
    assert (options.max_containers, options.min_containers) == (32, 0)
    assert recipe.evaluation.timeout_s == timeout_s


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("evaluator", ["local", "modal", "ray"])
def test_every_recipe_is_valid_with_every_evaluator(path: Path, evaluator: str) -> None:
    if not any(component.name == evaluator for component in registry().components("evaluators")):
        pytest.skip(f"evaluator {evaluator} is not installed")
    assert load_recipe(str(path), [f"evaluator.use={evaluator}"], registry=registry()).recipe.evaluator.use == evaluator


def in_millions(tokens: int) -> str:
    """In the form of the recipe headers: two digits, rounded up."""
    text = f"{Decimal(tokens).scaleb(-6).normalize(Context(prec=2, rounding=ROUND_UP)):f}"
    return f"{int(text):,}" if "." not in text else text


@pytest.mark.parametrize("name", [*NAMES, "kevin_tinker", "kevin_modal", "single_turn_modal", "raicl"])
def test_the_amounts_in_a_header_are_those_of_a_dry_run_without_tasks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    facts = plan(name, load(name), registry())
    of = "" if facts["steps"] is not None else "_per_step"
    amounts = (
        facts[f"{key}_tokens{of}{most}"] for key, most in (("reply", "_at_most"), ("prompt", ""), ("train", "_at_most"))
    )
    reply, prompt, train = map(in_millions, amounts)
    header = " ".join((RECIPES / f"{name}.yaml").read_text().split("\n\n")[0].replace("#", " ").split())
    assert f"{reply}, {prompt} and {train} million tokens" in header
    assert "no task was read: prompts of 2,000 tokens are assumed, held-out evaluation is excluded" in plan_notes(facts)


CLONE = os.environ.get("KERNELBENCH_ROOT", "")
"""A clone of KernelBench."""


def header_of(name: str) -> str:
    return " ".join((RECIPES / f"{name}.yaml").read_text().split("\n\n")[0].replace("#", " ").split())


@pytest.mark.skipif(not CLONE, reason="KERNELBENCH_ROOT names no clone of KernelBench")
@pytest.mark.parametrize(
    "name", ["kevin", "kevin_triton", "kevin_tinker", "single_turn", "raicl", "dr_kernel", "hip_multi_turn"]
)
def test_the_amounts_in_a_header_are_those_of_a_dry_run_with_tasks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load(name, "retriever=null") if name == "raicl" else load(name)
    facts = plan(name, recipe, registry())
    header = header_of(name)
    written = re.search(
        r"[Aa]t most ([\d.,]+), ([\d.,]+) and ([\d.,]+) million tokens \(replies, prompts, training", header
    )
    assert written is not None
    amounts = [facts[key] / 1e6 for key in ("reply_tokens_at_most", "prompt_tokens", "train_tokens_at_most")]
    # Audit and guard change from version to version, and the tasks that they exclude with them.
    assert [float(number.replace(",", "")) for number in written.groups()] == pytest.approx(amounts, rel=0.1)
    if hours := re.search(r"([\d.]+) hours of a GPU at 3 s", header):
        assert float(hours[1]) == pytest.approx(facts["gpu_seconds"] / 3600, rel=0.1)
    if steps := re.search(r"(\d+) steps of (\d+) samples", header):
        assert int(steps[1]) == pytest.approx(facts["steps"], rel=0.1)
        assert int(steps[2]) == facts["samples_per_step"]


def test_kevin_is_the_published_algorithm() -> None:
    """Values of arXiv 2507.11948 or, where marked (blog), of the blog post of 2025-05-06."""
    recipe = load("kevin")
    assert (recipe.policy.use, recipe.policy.options.model) == ("tinker", "Qwen/QwQ-32B")
    # Tasks: 90 of level 1, 90 of level 2; 20 of KernelBench held out.
    assert (recipe.tasks.use, recipe.tasks.options.levels, recipe.tasks.options.holdout) == (
        "kernelbench",
        (1, 2),
        "kevin",
    )
    assert (recipe.backend.use, recipe.prompt.template) == ("cuda", "kevin")
    # Turns: 4 in training, 16 parallel trajectories, 8 tasks in a batch, 512 samples.
    assert (recipe.episode.turns, recipe.episode.stop) == (4, "never")
    assert (recipe.train.tasks_per_step, recipe.train.group_size) == (8, 16)
    assert recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns == 512
    # Credit: every turn a sample, discounted sum with 0.4; mean and deviation over all samples of a task.
    assert (recipe.returns.gamma, recipe.returns.aggregate) == (0.4, "sum")
    assert (recipe.advantage.use, recipe.advantage.options.std, recipe.advantage.options.clip) == (
        "grpo",
        "population",
        None,
    )
    # Score: 0.3 for correct, plus the speedup over eager; nothing for anything else.
    assert total(recipe, Outcome.CORRECT, 1.5) == pytest.approx(1.8)
    assert total(recipe, Outcome.CORRECT, 120.0) == pytest.approx(120.3)
    assert total(recipe, Outcome.INCORRECT) == total(recipe, Outcome.COMPILE_ERROR) == 0.0
    assert (recipe.evaluation.timing, recipe.evaluation.baseline) == (True, "eager")
    assert (recipe.evaluation.profile, recipe.evaluation.excessive_speedup) == ("strict", None)
    # Reward 0 for torch operators, exception handlers, an inherited reference, or no kernel.
    assert {"no_kernel", "library_operators", "inherited_reference", "fallback"} <= set(recipe.forbid)
    # Two gradient steps per batch, at most 40 batches and so 80 steps; clip-higher, no KL.
    assert (recipe.train.substeps, recipe.train.steps) == (2, 40)
    assert (recipe.train.loss, recipe.train.clip_low, recipe.train.clip_high, recipe.train.kl) == (
        "ppo",
        0.2,
        0.28,
        0.0,
    )
    assert (recipe.train.length_norm, recipe.train.max_grad_norm) == ("max_tokens", 0.05)
    assert (recipe.train.learning_rate, recipe.train.warmup_ratio) == (2e-6, 0.03)
    assert (recipe.train.ratio, recipe.train.mismatch, recipe.train.coverage_rejection) == ("token", None, None)
    # Sampling: 0.9; replies of 16,384 tokens, 22K from step 30; prompts of 8,192 (blog).
    assert (recipe.sampling.temperature, recipe.sampling.max_tokens, recipe.prompt.max_tokens) == (0.9, 16384, 8192)
    assert recipe.sampling.extend is not None
    assert (recipe.sampling.extend.after_step, recipe.sampling.extend.max_tokens) == (30, 22528)
    # Context: no earlier reasoning but the model's summary; all turns in order; the example on the first turn.
    assert (recipe.history.thinking, recipe.history.keep, recipe.history.form) == ("summarised", "all", "prompt")
    assert (recipe.prompt.shots, recipe.prompt.example_turns) == ("one", "first")
    assert recipe.curriculum is None


def test_the_header_of_kevin_lists_the_unpublished_parts_of_the_paper() -> None:
    header = " ".join((RECIPES / "kevin.yaml").read_text().split("\n\n")[0].replace("#", " ").split())
    assert "Only the paper had 8 H200 for several days" in header
    assert "enlarged tensor sizes" in header
    assert "80 unpublished tasks" in header
    assert "LoRA" in header


@pytest.mark.parametrize(
    ("name", "departures"),
    [
        (
            "kevin",
            ("temperature 0.9; the log-probabilities in the loss are those at temperature 1", "and `pass` are acc"),
        ),
        ("single_turn", ("temperature 0.9; the log-probabilities in the loss are those", "timing_method: replay")),
        ("dr_kernel", ("prompt.max_tokens 10240 and max_grad_norm 1.0 are choices", "LoRA of the instruct model")),
    ],
)
def test_header_lists_departures_from_the_source(name: str, departures: tuple[str, ...]) -> None:
    header = " ".join((RECIPES / f"{name}.yaml").read_text().split("\n\n")[0].replace("#", " ").split())
    listed = header.split(" Departures ")[1]
    assert [text for text in departures if text not in listed] == []


def test_kevin_triton_and_hip_differ_from_kevin_only_in_language_and_tasks() -> None:
    kevin, triton, hip = (load(name) for name in ("kevin", "kevin_triton", "hip_multi_turn"))
    for other in (triton, hip):
        for part in ("train", "returns", "advantage", "rewards", "sampling", "episode", "history", "prompt", "eval"):
            assert getattr(other, part) == getattr(kevin, part), part
    assert triton.tasks == kevin.tasks
    assert triton.backend.use == "triton"
    assert (hip.backend.use, hip.backend.options.arch, hip.backend.options.mode) == ("hip", "gfx950", "gpu")
    assert (hip.evaluator.use, hip.tasks.options.levels, hip.tasks.options.source) == ("local", (1, 2, 3), "local")


@pytest.mark.parametrize("name", ["kevin", "kevin_triton"])
def test_the_recipes_with_retrieval_differ_from_kevin_only_in_the_retriever(name: str) -> None:
    plain, retrieving = load(name), load(f"{name}_raicl")
    assert retrieving.retriever is not None
    assert attrs.evolve(retrieving, retriever=None) == plain
    assert load(f"{name}_raicl", "retriever=null") == plain


@pytest.mark.parametrize("name", ["kevin_raicl", "kevin_triton_raicl", "raicl"])
def test_retriever_index_and_k_are_the_published_ones(name: str) -> None:
    """The keys `rag_index_path` and `raicl_k` of kernel-rl; its retriever searches a FAISS index by cosine."""
    retriever = load(name).retriever
    assert retriever is not None
    assert (retriever.use, retriever.options.index.name, retriever.k) == ("faiss", "kernel_rag_index", 3)
    assert (retriever.turns, retriever.guard) == ("first", "task")
    header = (RECIPES / f"{name}.yaml").read_text().split("\n\n")[0]
    assert "--output ./kernel_rag_index" in header
    assert f"kernelrl index info ./kernel_rag_index --recipe {name} " in header


def test_raicl_is_the_published_configuration() -> None:
    """rl_kernelbench_raicl.yaml of kernel-rl. Its rewards of thinking and format penalty are defaults of its code."""
    recipe = load("raicl")
    assert (recipe.policy.use, recipe.policy.options.model) == ("tinker", "Qwen/Qwen3-30B-A3B")
    assert recipe.policy.options.lora_rank == 32
    assert (recipe.tasks.use, recipe.tasks.options.levels, recipe.tasks.options.holdout.fraction) == (
        "kernelbench",
        (1,),
        0.1,
    )
    assert (recipe.backend.use, recipe.episode.turns) == ("triton", 1)
    assert (recipe.train.tasks_per_step, recipe.train.group_size, recipe.train.epochs) == (4, 8, 1)
    assert (recipe.train.shuffle, recipe.train.drop_uniform_groups) == (True, True)
    assert (recipe.train.learning_rate, recipe.train.warmup_ratio, recipe.train.substeps) == (1e-4, 0.0, 1)
    assert (recipe.train.loss, recipe.train.kl, recipe.train.max_grad_norm) == ("importance_sampling", 0.0, None)
    assert (recipe.advantage.use, recipe.train.length_norm) == ("dr_grpo", "none")
    assert (recipe.train.checkpoint_every, recipe.eval.every) == (10, 10)
    assert (recipe.sampling.max_tokens, recipe.sampling.temperature, recipe.sampling.top_p) == (4096, 1.0, 1.0)
    assert (recipe.evaluation.trials, recipe.evaluation.timing) == (5, False)
    # 1.0 correct + 0.2 compile + 0.1 format + 0.05 length + 0.1 thinking, of which a reply without thinking gets half.
    weights = {name: use.weight for name, use in recipe.rewards.items()}
    assert weights == {"correct": 1.0, "compile": 0.2, "format": 0.1, "brief": 0.05, "thinking": 0.1}
    assert total(recipe, Outcome.CORRECT) == pytest.approx(1.4)
    assert total(recipe, Outcome.INCORRECT) == pytest.approx(0.4)
    assert recipe.rewards["format"].options.penalty == -0.1


def test_the_documented_curriculum_is_accepted() -> None:
    page = (RECIPES.parent / "docs" / "algorithms.md").read_text()
    written = parse_value(page.split("```yaml\n", 1)[1].split("```", 1)[0])["curriculum"]
    recipe = load("single_turn", f"curriculum={json.dumps(written)}")
    assert recipe.curriculum is not None
    assert [stage.levels for stage in recipe.curriculum.stages] == [(1,), (1, 2), (1, 2, 3)]
    assert recipe.curriculum.difficulty is not None


def test_single_turn_is_the_default_of_the_earlier_systems() -> None:
    recipe = load("single_turn")
    assert (recipe.policy.use, recipe.policy.options.model) == ("tinker", "Qwen/Qwen3-30B-A3B")
    assert recipe.policy.options.lora_rank == 64
    assert (recipe.tasks.options.levels, recipe.backend.use, recipe.episode.turns) == ((1,), "triton", 1)
    assert (recipe.train.tasks_per_step, recipe.train.group_size, recipe.train.epochs) == (8, 16, 22)
    assert (recipe.sampling.max_tokens, recipe.sampling.temperature) == (16384, 0.9)
    assert (recipe.train.learning_rate, recipe.train.warmup_ratio, recipe.train.substeps) == (2e-6, 0.03, 2)
    assert (recipe.train.loss, recipe.train.clip_low, recipe.train.clip_high) == ("ppo", 0.2, 0.28)
    assert (recipe.train.length_norm, recipe.train.max_grad_norm, recipe.advantage.use) == (16384, 0.05, "dr_grpo")
    assert (recipe.evaluation.trials, recipe.evaluation.timing_trials) == (5, 100)
    assert recipe.evaluation.excessive_speedup == 10.0
    # 0.3 correct + min(speedup, 10): a kernel with speedup 25 scores 10.3.
    assert total(recipe, Outcome.CORRECT, 25.0) == pytest.approx(10.3)
    assert total(recipe, Outcome.INCORRECT) == 0.0


def test_dr_kernel_is_the_published_algorithm() -> None:
    """arXiv 2602.05885, and its 14B training script."""
    recipe = load("dr_kernel")
    assert (recipe.episode.turns, recipe.train.group_size, recipe.train.tasks_per_step) == (3, 16, 16)
    assert (recipe.advantage.use, recipe.returns.gamma, recipe.returns.aggregate) == ("trloo", 1.0, "sum")
    assert (recipe.train.steps, recipe.train.substeps, recipe.train.learning_rate) == (300, 1, 1e-6)
    assert (recipe.train.clip_low, recipe.train.clip_high, recipe.train.kl) == (0.2, 0.28, 0.0)
    assert recipe.train.max_grad_norm == 1.0
    assert (recipe.sampling.max_tokens, recipe.sampling.temperature, recipe.sampling.top_p) == (8192, 1.0, 1.0)
    assert recipe.prompt.max_tokens == 10240
    mismatch, rejection = recipe.train.mismatch, recipe.train.coverage_rejection
    assert mismatch is not None
    assert rejection is not None
    assert (mismatch.sequence_low, mismatch.sequence_high, mismatch.token_min) == (0.999, 1.001, 1e-4)
    assert (rejection.threshold, rejection.ramp) == (0.3, 0.1)
    # R = C + C min(speedup, 3) + C coverage: 1 + 3 + 0.5.
    assert total(recipe, Outcome.CORRECT, 4.0, 0.5) == pytest.approx(4.5)
    assert total(recipe, Outcome.INCORRECT, 4.0, 0.5) == 0.0


def test_the_cold_start_of_dr_kernel_is_made_elsewhere_as_its_header_documents() -> None:
    """`demonstrations.file` is refused with its policy, and `policy.start_from` is an option of it."""
    recipe = load("dr_kernel")
    assert not registry().make("policies", recipe.policy).capabilities.warm_start
    assert hasattr(recipe.policy.options, "start_from")
    header = " ".join((RECIPES / "dr_kernel.yaml").read_text().split("\n\n")[0].replace("#", " ").split())
    assert "warm-starts with `server: local` only" in header
    assert "in policy.start_from" in header
