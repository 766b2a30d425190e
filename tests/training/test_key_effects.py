"""Every key of `train`, `sampling`, `history`, `returns` and `episode` changes a run or is rejected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.algorithms.advantages import grpo
from kernelrl_core.errors import InfrastructureError
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.interfaces.policies import PolicyCapabilities, PolicyConfig
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.rules.contradictions import contradictions
from kernelrl_core.recipe.schema import (
    BestHistory,
    CoverageRejection,
    EpisodeSettings,
    EvalSettings,
    Extension,
    HistorySettings,
    MismatchSettings,
    Recipe,
    ReturnSettings,
    SamplingOptions,
    TrainSettings,
    Use,
)
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import (
    EvaluationSettings,
    Example,
    Extraction,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
)
from kernelrl_core.types.training import SamplingSettings, TrainingSample
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe, train_here
from kernelrl_testing.values import make_candidate, make_evaluation, make_reply
from kernelrl_testing.waiting import takes_async

RECIPE = make_recipe(
    episode=EpisodeSettings(turns=3),
    returns=ReturnSettings(gamma=0.5),
    sampling=SamplingOptions(max_tokens=100),
    train=TrainSettings(tasks_per_step=2, group_size=2, steps=2, loss="ppo", length_norm="max_tokens"),
)
SOURCE = "class ModelNew:\n    pass\n"


class Policy(FakePolicy):
    """Samples the second task fastest. Request number `lost` raises an infrastructure error."""

    def __init__(self, lost: int | None) -> None:
        super().__init__()
        self._lost = lost

    async def before(self, method: str, argument: Any) -> None:
        if method == "sample":
            if self.calls.count("sample") == self._lost:
                raise InfrastructureError("no reply")
            await takes_async(0.0 if "reference 1" in argument.messages[-1].content else 0.02)
        elif method == "update":
            await takes_async(0.02)  # long enough for replies that are sampled ahead

    def reply(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        return make_reply("text", (1, 2), logprobs=(-0.1, -settings.seed % 7 / 10 - 0.1))

    async def logprobs(self, samples: Sequence[TrainingSample], weights: str) -> list[list[float]]:
        return [[-0.1, -0.3] for _ in samples]


class Environment(FakeEnvironment):
    """Composes prompts as the core does. The first episode is correct, others from their second turn on."""

    def __init__(self, recipe: Recipe) -> None:
        facts = BackendFacts("Fake", (), "Write a kernel.", Example(reference="r", kernel=SOURCE))
        first, *others = numbered_tasks(train=5, held_out=4)
        tasks = [*others, attrs.evolve(first, id="held_out/leak", split="held_out")]
        tasks.insert(0, first)
        super().__init__(
            tasks=FakeTasks([attrs.evolve(task, flags=("zeros_pass",) * task.id.endswith("3")) for task in tasks]),
            composer=Composer(recipe.prompt, recipe.history, facts, (), EvaluationSettings()),
        )

    def turn(self, where: SampleId, task: Task, reply: Reply) -> Turn:
        correct = where.attempt == 0 or where.turn > 0
        turn = self.turn_that_is(correct, where)
        candidate = make_candidate(f"{SOURCE}# {where}\n", "fake", thinking=f"a thought of {where}")
        return attrs.evolve(
            turn,
            extraction=Extraction(candidate, thinking="a thought"),
            evaluation=make_evaluation(turn.outcome, own_kernel_share=0.5),
            # Task 2 gives no signal: all its episodes have the same score.
            score=Score(float(correct and not task.id.endswith("2")) * (1 + where.turn)),
        )


def observed(path: Path, recipe: Recipe, *, lost: int | None = None) -> dict[str, Any]:
    """All results of a run that a key can change."""
    run, policy, said = RunDir.create(path, {}, {}), Policy(lost), []
    train_here(run, recipe, Environment(recipe), policy, grpo, say=said.append)
    requests = [(prompt.messages, settings) for prompt, settings in policy.requests]
    return {
        "requests": sorted(requests, key=lambda request: (request[1].seed, str(request[0]))),
        "calls": [call for call in policy.calls if call != "sample"],
        "gradients": policy.accumulated,
        "updates": policy.updates,
        # The next step begins during a held-out evaluation, so the number depends on the times of both.
        "most at once": policy.most_concurrent if not recipe.eval.every else None,
        "credits": run.rows("credits"),
        "staleness": sorted((row["sample"], row["behind"]) for row in run.rows("samples")),
        "steps": len(run.rows("metrics")),
        "checkpoints": [row["name"] for row in run.rows("checkpoints")],
        "kept": sorted(path.name for path in run.checkpoints.iterdir()),
        "said": said,
    }


def refusals(recipe: Recipe) -> list[tuple[str, ...]]:
    parts = {key: getattr(recipe, key) for key in ("train", "curriculum", "policy")}
    return [found.path for found in contradictions(parts, Registry(()))]


def changed(recipe: Recipe, block: str, **values: Any) -> Recipe:
    return attrs.evolve(recipe, **{block: attrs.evolve(getattr(recipe, block), **values)})


LOOSE = {"exact_resume": False}
TRAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "split": ("held_out", {}),
    "quarantine": (False, {}),
    "decontaminate": (False, {}),
    "tasks_per_step": (3, {}),
    "group_size": (3, {}),
    "steps": (3, {}),
    "epochs": (3.0, {"steps": None}),
    "shuffle": (False, {}),
    "learning_rate": (0.1, {}),
    "warmup_ratio": (1.0, {}),
    "learning_rate_schedule": ("cosine", {}),
    "learning_rate_floor": (0.5, {"learning_rate_schedule": "linear"}),
    "substeps": (2, {}),
    "loss": ("importance_sampling", {}),
    "clip_low": (0.1, {}),
    "clip_high": (0.3, {}),
    "kl": (0.5, {}),
    "logprobs_at": ("sampling", {}),
    "mismatch": (MismatchSettings(), {}),
    "importance_cap": (2.0, {}),
    "ratio": ("sequence", {}),
    "coverage_rejection": (CoverageRejection(threshold=0.9), {}),
    "length_norm": ("none", {}),
    "max_grad_norm": (1.0, {}),
    "beta1": (0.8, {}),
    "beta2": (0.9, {}),
    "eps": (1e-6, {}),
    "weight_decay": (0.1, {}),
    "drop_uniform_groups": (False, {"shuffle": False, "tasks_per_step": 3}),
    "refill": (1, {"shuffle": False, "tasks_per_step": 3}),
    "min_group_size": (1, {}),
    "stream": (False, {}),
    "order": ("completion", LOOSE | {"shuffle": False}),
    "staleness": (1, LOOSE),
    "checkpoint_every": (2, {}),
    "keep_checkpoints": (1, {}),
    "keep_best": ("eval/pass@1", {"checkpoint_every": 2}),
}
"""Key -> (another value, settings of both runs)."""
SURROUNDINGS: dict[str, dict[str, Any]] = {
    "logprobs_at": {"sampling": SamplingOptions(max_tokens=100, temperature=0.5)},
    "keep_best": {"eval": EvalSettings(every=1)},
}
"""Key -> other blocks of both runs."""
OTHERS: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {
    "sampling": {
        "max_tokens": (50, {}),
        "temperature": (0.5, {}),
        "top_p": (0.9, {}),
        "top_k": (5, {}),
        "stop": (("END",), {}),
        "extend": (Extension(1, 200), {}),
        "concurrency": (1, {}),
    },
    "history": {
        "thinking": ("kept", {}),
        "keep": (BestHistory(1), {}),
        "form": ("prompt", {}),
    },
    "returns": {"gamma": (0.9, {}), "aggregate": ("max", {})},
    "episode": {"turns": (2, {}), "stop": ("correct", {})},
}
CASES = [("train", key, *case) for key, case in TRAIN.items()] + [
    (block, key, *case) for block, keys in OTHERS.items() for key, case in keys.items()
]


@pytest.fixture(scope="module")
def reproducible(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe, int | None], dict[str, Any]]:
    """Results of a recipe that are equal in two runs. Most keys are compared with the same recipe, which runs once."""
    found: list[tuple[Recipe, int | None, dict[str, Any]]] = []

    def run(recipe: Recipe, lost: int | None) -> dict[str, Any]:
        for known, known_lost, results in found:
            if (known, known_lost) == (recipe, lost):
                return results
        folder = tmp_path_factory.mktemp("base")
        results = observed(folder / "before", recipe, lost=lost)
        assert observed(folder / "again", recipe, lost=lost) == results
        found.append((recipe, lost, results))
        return results

    return run


@pytest.mark.parametrize(("block", "key", "value", "context"), CASES, ids=[f"{b}.{k}" for b, k, *_ in CASES])
def test_every_key_changes_the_run(
    tmp_path: Path, reproducible: Any, block: str, key: str, value: Any, context: dict[str, Any]
) -> None:
    base = attrs.evolve(changed(RECIPE, block, **context), **SURROUNDINGS.get(key, {}))
    lost = 2 if key == "min_group_size" else None
    before = reproducible(base, lost)
    assert observed(tmp_path / "after", changed(base, block, **{key: value}), lost=lost) != before


class Deterministic(PolicyConfig):
    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(frozenset({"ppo"}), deterministic=True)


@pytest.mark.parametrize("given", [True, None])
@pytest.mark.parametrize("loose", [{"order": "completion"}, {"staleness": 1}])
def test_exact_resume_rejects_settings_that_change_a_resumed_run(given: bool | None, loose: dict[str, Any]) -> None:
    exact = changed(RECIPE, "train", exact_resume=given, **loose)
    exact = attrs.evolve(exact, policy=Use("fake", Deterministic()))
    assert refusals(exact) == [("train", next(iter(loose)))]
    assert refusals(changed(exact, "train", exact_resume=False)) == []


def test_every_key_of_these_blocks_is_tested() -> None:
    classes = {
        "sampling": SamplingOptions,
        "history": HistorySettings,
        "returns": ReturnSettings,
        "episode": EpisodeSettings,
    }
    assert {*TRAIN, "exact_resume"} == {field.name for field in attrs.fields(TrainSettings)}
    for block, cls in classes.items():
        assert set(OTHERS[block]) == {field.name for field in attrs.fields(cls)}
