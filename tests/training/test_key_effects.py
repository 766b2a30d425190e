"""Every key of `train`, `sampling`, `history`, `returns` and `episode` changes a run, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from loop_builder import train_here

from kernelrl_core.algorithms.advantages import grpo
from kernelrl_core.errors import InfrastructureError
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.interfaces.evaluators import EvaluatorConfig
from kernelrl_core.interfaces.policies import PolicyCapabilities, PolicyConfig, PolicyContext, TrainablePolicy
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.planning.checks import contradictions
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.schema import (
    BestHistory,
    CoverageRejection,
    EpisodeSettings,
    Extension,
    HistorySettings,
    MismatchSettings,
    Recipe,
    ReturnSettings,
    RewardUse,
    SamplingOptions,
    TrainSettings,
    Use,
)
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import (
    BuildStatus,
    Candidate,
    Evaluation,
    EvaluationSettings,
    Example,
    Extraction,
    Message,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
    Verdict,
)
from kernelrl_core.types.training import Loss, LossSample, SamplingSettings, TrainingSample, Update

RECIPE = Recipe(
    tasks=Use("fake"),
    backend=Use("fake"),
    policy=Use("fake", PolicyConfig()),
    evaluator=Use("fake", EvaluatorConfig()),
    rewards={"correct": RewardUse("correctness")},
    episode=EpisodeSettings(turns=3),
    returns=ReturnSettings(gamma=0.5),
    sampling=SamplingOptions(max_tokens=100),
    train=TrainSettings(tasks_per_step=2, group_size=2, steps=2, loss="ppo", length_norm="max_tokens"),
)
SOURCE = "class ModelNew:\n    pass\n"


class Policy(TrainablePolicy):
    """Records everything that it is asked for. The second task is the fastest to sample."""

    context_tokens = 100_000
    capabilities = PolicyCapabilities(
        frozenset({"ppo", "importance_sampling"}), streams=True, logprobs=True, reference=True
    )

    def __init__(self, lost: int | None) -> None:
        self.requests: list[Any] = []
        self.calls: list[Any] = []
        self.at_once = self.most_at_once = 0
        self._lost = lost

    async def start(self, context: PolicyContext) -> None: ...

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), (1, 2, 3))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        self.requests.append((prompt.messages, settings))
        if len(self.requests) == self._lost:
            raise InfrastructureError("no reply")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.0 if "reference 1" in prompt.messages[-1].content else 0.02)
        self.at_once -= 1
        return Reply("text", (1, 2), (-0.1, -settings.seed % 7 / 10 - 0.1), "stop")

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        self.calls.append(("backward", tuple(samples), loss))

    async def update(self, update: Update) -> dict[str, float]:
        self.calls.append(update)
        await asyncio.sleep(0.02)  # long enough for replies that are sampled ahead
        return {}

    async def logprobs(self, samples: Sequence[TrainingSample], weights: str) -> list[list[float]]:
        return [[-0.1, -0.3] for _ in samples]

    async def save(self, directory: Path) -> dict[str, Any]:
        return {}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None: ...


class Tasks(TaskSource):
    def splits(self) -> tuple[str, ...]:
        return ("train", "held_out")

    def tasks(self, split: str) -> list[Task]:
        flags = {3: ("zeros_pass",)}
        return [Task(f"{split}/{i}", f"reference {i}", split, flags=flags.get(i, ())) for i in range(4)]


class Environment:
    """Composes prompts as the core does. The first episode is correct, others from their second turn on."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.tasks = recipe, Tasks()
        facts = BackendFacts("Fake", (), "Write a kernel.", Example(reference="r", kernel=SOURCE))
        self.composer = Composer(recipe.prompt, recipe.history, facts, (), EvaluationSettings())

    async def examples(self, task: Task) -> tuple[()]:
        return ()

    async def evaluate_reply(
        self, where: SampleId, task: Task, prompt: Prompt, reply: Reply, *, seconds: Mapping[str, float]
    ) -> Turn:
        correct = where.attempt == 0 or where.turn > 0
        outcome = Outcome.CORRECT if correct else Outcome.INCORRECT
        source = f"{SOURCE}# {where}\n"
        return Turn(
            id=where,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=Extraction(Candidate(source, "fake", thinking=f"a thought of {where}"), thinking="a thought"),
            evaluation=Evaluation(outcome, build=BuildStatus.BUILT, own_kernel_share=0.5),
            findings=(),
            outcome=outcome,
            verdict=Verdict.CLEAN,
            message="",
            # Task 2 gives no signal: all its episodes score alike.
            score=Score(float(correct and not task.id.endswith("2")) * (1 + where.turn)),
            feedback=f"feedback on turn {where.turn}",
            seconds=seconds,
        )

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, loop: Mapping[str, Any]) -> None: ...


def observed(path: Path, recipe: Recipe, *, lost: int | None = None) -> dict[str, Any]:
    """Everything about a run that a key could change."""
    run, policy, said = RunDir.create(path, {}, {}), Policy(lost), []
    train_here(run, recipe, Environment(recipe), policy, grpo, say=said.append)
    by_text = sorted(policy.requests, key=lambda request: (request[1].seed, str(request[0])))
    return {
        "requests": by_text,
        "calls": policy.calls,
        "most at once": policy.most_at_once,
        "credits": run.rows("credits"),
        "staleness": sorted((row["sample"], row["behind"]) for row in run.rows("samples")),
        "steps": len(run.rows("metrics")),
        "checkpoints": [row["name"] for row in run.rows("checkpoints")],
        "kept": sorted(path.name for path in run.checkpoints.iterdir()),
        "said": said,
    }


def refusals(recipe: Recipe) -> list[tuple[str, ...]]:
    parts = {key: getattr(recipe, key) for key in ("train", "curriculum")}
    return [found.path for found in contradictions(parts, Registry(()))]


def changed(recipe: Recipe, block: str, **values: Any) -> Recipe:
    return attrs.evolve(recipe, **{block: attrs.evolve(getattr(recipe, block), **values)})


LOOSE = {"exact_resume": False}
TRAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "split": ("held_out", {}),
    "quarantine": (False, {}),
    "tasks_per_step": (3, {}),
    "group_size": (3, {}),
    "steps": (3, {}),
    "epochs": (3.0, {"steps": None}),
    "shuffle": (False, {}),
    "learning_rate": (0.1, {}),
    "warmup_ratio": (1.0, {}),
    "substeps": (2, {}),
    "loss": ("importance_sampling", {}),
    "clip_low": (0.1, {}),
    "clip_high": (0.3, {}),
    "kl": (0.5, {}),
    "mismatch": (MismatchSettings(), {}),
    "ratio": ("sequence", {}),
    "coverage_rejection": (CoverageRejection(threshold=0.9), {}),
    "length_norm": ("none", {}),
    "max_grad_norm": (1.0, {}),
    "beta1": (0.8, {}),
    "beta2": (0.9, {}),
    "eps": (1e-6, {}),
    "weight_decay": (0.1, {}),
    "drop_uniform_groups": (False, {"shuffle": False, "tasks_per_step": 3}),
    "min_group_size": (1, {}),
    "stream": (False, {}),
    "order": ("completion", LOOSE | {"shuffle": False}),
    "staleness": (1, LOOSE),
    "checkpoint_every": (2, {}),
    "keep_checkpoints": (1, {}),
}
"""Key -> another value, and what else is set in both runs."""
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


@pytest.mark.parametrize(("block", "key", "value", "context"), CASES, ids=[f"{b}.{k}" for b, k, *_ in CASES])
def test_a_key_changes_the_run(tmp_path: Path, block: str, key: str, value: Any, context: dict[str, Any]) -> None:
    base = changed(RECIPE, block, **context)
    lost = 2 if key == "min_group_size" else None
    before = observed(tmp_path / "before", base, lost=lost)
    assert observed(tmp_path / "again", base, lost=lost) == before
    assert observed(tmp_path / "after", changed(base, block, **{key: value}), lost=lost) != before


@pytest.mark.parametrize("loose", [{"order": "completion"}, {"staleness": 1}])
def test_exact_resume_refuses_what_makes_a_resumed_run_differ(loose: dict[str, Any]) -> None:
    exact = changed(RECIPE, "train", **loose)
    assert refusals(exact) == [("train", next(iter(loose)))]
    assert refusals(changed(exact, "train", exact_resume=False)) == []


def test_every_key_of_these_blocks_is_tried() -> None:
    classes = {
        "sampling": SamplingOptions,
        "history": HistorySettings,
        "returns": ReturnSettings,
        "episode": EpisodeSettings,
    }
    assert {*TRAIN, "exact_resume"} == {field.name for field in attrs.fields(TrainSettings)}
    for block, cls in classes.items():
        assert set(OTHERS[block]) == {field.name for field in attrs.fields(cls)}
