"""The starter tasks: their format, their demonstrations and the outcomes of those."""

from __future__ import annotations

import ast
import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Demonstration, Outcome, Task, parse_task_source
from kernelrl_plugin_starter.catalogue import ENTRIES
from kernelrl_plugin_starter.composition.parts import PARTS
from kernelrl_plugin_starter.composition.source import ComposeTasks
from kernelrl_plugin_starter.config import ComposeOptions, StarterOptions
from kernelrl_plugin_starter.cpp_flaws import CPP_SEMANTIC, CPP_SYNTACTIC
from kernelrl_plugin_starter.frames import read_reference
from kernelrl_plugin_starter.practice import EQUAL
from kernelrl_plugin_starter.source import StarterTasks

SOURCE = StarterTasks(StarterOptions(practice=50))
TASKS = [task for split in ("train", "held_out") for task in SOURCE.tasks(split)]


class _Anonymous(ast.NodeTransformer):
    """Replace names by their order of appearance, and numbers by 0."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.setdefault(node.id, f"v{len(self.names)}"), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.names.setdefault(node.arg, f"v{len(self.names)}"))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(0) if isinstance(node.value, int | float) else node


def structure(task: Task) -> str:
    model = next(node for node in ast.parse(task.reference).body if isinstance(node, ast.ClassDef))
    return ast.dump(_Anonymous().visit(model))


def test_at_least_forty_tasks_with_three_levels_in_both_splits() -> None:
    assert len(TASKS) >= 40
    for split in ("train", "held_out"):
        assert {task.level for task in SOURCE.tasks(split)} == {1, 2, 3}
    assert len(SOURCE.tasks("train")) >= 24


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_is_in_kernelbench_format(task: Task) -> None:
    parse_task_source(task.reference, task.id)


def test_no_two_tasks_have_the_same_structure() -> None:
    structures = [structure(task) for task in TASKS]
    assert len(set(structures)) == len(structures)


def test_splits_share_no_task() -> None:
    splits = [{task.sha256 for task in SOURCE.tasks(split)} for split in SOURCE.splits()]
    assert sum(map(len, splits)) == len(set.union(*splits))


def test_no_generated_task_has_the_lines_of_a_catalogue_task() -> None:
    known = {read_reference(task.reference).steps for task in TASKS}
    assert not known & {read_reference(task.reference).steps for task in SOURCE.tasks("practice")}


def test_a_generated_task_that_computes_a_held_out_task_names_it() -> None:
    source = StarterTasks(StarterOptions(practice=200))
    held_out = {task.sha256: task.id for task in source.tasks("held_out")}
    named = {task.name: held_out[task.equals[0]] for task in source.tasks("practice") if task.equals}
    assert named == EQUAL


def test_only_train_and_practice_have_demonstrations() -> None:
    assert all(SOURCE.demonstrations(task) for split in ("train", "practice") for task in SOURCE.tasks(split))
    assert not any(SOURCE.demonstrations(task) for task in SOURCE.tasks("held_out"))


@pytest.mark.parametrize("share", [0.25, 0.4])
def test_correct_demonstrations_have_the_configured_weight(share: float) -> None:
    source = StarterTasks(StarterOptions(practice=0, right_share=share))
    for task, backend in itertools.product(source.tasks("train"), ("triton", "cpp")):
        found = [item for item in source.demonstrations(task) if item.backend == backend]
        assert sum(item.weight for item in found) == pytest.approx(1.0)
        right = sum(item.weight for item in found if item.outcome is Outcome.CORRECT)
        assert right == pytest.approx(share)


def test_unknown_name_is_refused_with_the_nearest_known_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        StarterTasks(StarterOptions(names=("softmx",)))


# --- outcomes -------------------------------------------------------------------------------------------------------


def recipe(backend: str = "triton", mode: str = "interpreter") -> object:
    from kernelrl_core.api.components import registry
    from kernelrl_core.api.episodes import recipe_from_mapping

    return recipe_from_mapping(
        {
            "tasks": {"use": "starter", "practice": 0},
            "backend": {"use": "triton", "mode": mode} if backend == "triton" else {"use": backend},
            "policy": {"use": "torch"},
            "evaluation": {"trials": 2},
            "rewards": {"correct": {"use": "correctness"}},
            "checkers": {"source": {"use": "source_rules"}},
        },
        registry=registry(),
        name="starter",
    ).recipe


class Judges:
    """Environments shared by several tests, because starting a judge takes seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.Runner()
        self._environments: dict[tuple[str, str], Any] = {}

    def outcomes(
        self, pairs: list[tuple[Task, str]], backend: str = "triton", mode: str = "interpreter"
    ) -> list[Outcome]:
        """Outcome of each source, evaluated by the real judge against its task."""
        return self._loop.run(self._evaluate(pairs, backend, mode))

    def mismatches(
        self, demonstrations: list[tuple[Task, Demonstration]], backend: str, mode: str = "interpreter"
    ) -> list[str]:
        """One line for each demonstration whose outcome differs from the declared one."""
        pairs = [(task, demonstration.source) for task, demonstration in demonstrations]
        outcomes = self.outcomes(pairs, backend, mode)
        return [
            f"{task.id} {demonstration.flaw or 'no flaw'}: {outcome}, not {demonstration.outcome}"
            for (task, demonstration), outcome in zip(demonstrations, outcomes, strict=True)
            if outcome is not demonstration.outcome
        ]

    def close(self) -> None:
        for environment in self._environments.values():
            self._loop.run(environment.aclose())
        self._loop.close()

    async def _evaluate(self, pairs: list[tuple[Task, str]], backend: str, mode: str) -> list[Outcome]:
        from kernelrl_core.api.components import registry
        from kernelrl_core.api.episodes import Environment, SampleId
        from kernelrl_core.api.policies import Prompt, Reply
        from kernelrl_testing.core import extract_file

        key = backend, mode
        if key not in self._environments:
            self._environments[key] = Environment.from_recipe(
                recipe(backend, mode), registry=registry(), secret=b"secret", cache_dir=None
            )
        environment = self._environments[key]

        async def one(task: Task, source: str) -> Outcome:
            extraction = extract_file(source, backend=backend)
            here = SampleId(0, 0, 0, 0)
            reply = Reply(source, (), (), "stop")
            turn = await environment.evaluate_extraction(here, task, Prompt((), ()), reply, extraction, seconds={})
            return turn.outcome

        return await asyncio.gather(*(one(*pair) for pair in pairs))


@pytest.fixture(scope="module")
def judges(one_judge_at_once: None) -> Iterator[Judges]:
    judges = Judges()
    yield judges
    judges.close()


def demonstrations_of(source: StarterTasks, backend: str) -> list[tuple[Task, Demonstration]]:
    return [
        (task, demonstration)
        for task in source.tasks("train")
        for demonstration in source.demonstrations(task)
        if demonstration.backend == backend
    ]


FRAMES = {entry.name: entry.frame for entry in ENTRIES}
ONE_OF_EACH_FRAME = {entry.frame: entry.name for entry in ENTRIES if entry.split == "train"}
OF_A_FRAME = {
    *("missing_import", "unknown_block", "missing_argument", "wrong_shape", "wrong_dtype"),
    *("one_program", "missing_launch", "missing_colon", "open_parenthesis", "wrong_class"),
}
"""Flaws outside of the steps and the sizes: their outcome depends on the frame only."""


@pytest.mark.slow
def test_triton_demonstrations_have_their_declared_outcome(judges: Judges) -> None:
    """A subset; `KERNELRL_TEST_ALL_ANSWERS=1` evaluates all of them.

    It has every task, block size and flaw, every flaw once in each frame, and a third of the flaws of each task.
    """
    found = demonstrations_of(SOURCE, "triton")
    right = [pair for pair in found if pair[1].outcome is Outcome.CORRECT]
    assert len(right) == 2 * len(SOURCE.tasks("train"))
    # The correct kernels of a task differ in the block size, tasks of a frame in the steps: each task in one block
    # size, one task of each frame in both.
    blocks = [
        pair
        for index, pair in enumerate(right)
        if index % 2 == index // 2 % 2 or pair[0].name in ONE_OF_EACH_FRAME.values()
    ]
    flawed = [(task, item) for task, item in found if item.outcome is not Outcome.CORRECT]
    once = {(FRAMES[task.name], item.flaw): (task, item) for task, item in flawed if item.flaw in OF_A_FRAME}
    others = {(FRAMES[task.name], item.flaw): (task, item) for task, item in flawed if item.flaw not in OF_A_FRAME}
    third = [pair for pair in flawed if pair[1].flaw not in OF_A_FRAME][::3]
    subset = {id(item): (task, item) for task, item in [*blocks, *third, *others.values(), *once.values()]}
    chosen = found if "KERNELRL_TEST_ALL_ANSWERS" in os.environ else list(subset.values())
    assert judges.mismatches(chosen, "triton") == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_demonstrations_have_their_declared_outcome(judges: Judges) -> None:
    """All demonstrations of one task, in the large size, and every kind of flaw at least once."""
    source = StarterTasks(StarterOptions(practice=0, size="large"))
    found = demonstrations_of(source, "cpp")
    flaws = {item.flaw: (task, item) for task, item in found if item.flaw}
    assert set(flaws) == {flaw.name for flaw in (*CPP_SEMANTIC, *CPP_SYNTACTIC)}
    whole = [(task, item) for task, item in found if task.name == "layer_norm"]
    others = flaws.keys() - {item.flaw for _, item in whole}
    assert judges.mismatches([*whole, *(flaws[flaw] for flaw in sorted(others))], "cpp") == []


def huge_demonstrations() -> list[tuple[Task, Demonstration]]:
    return demonstrations_of(StarterTasks(StarterOptions(practice=0, size="huge")), "triton")


@pytest.mark.slow
def test_gpu_demonstrations_are_correct_on_small_inputs(judges: Judges) -> None:
    """In the interpreter: one speed for every task, each speed for some tasks of each frame."""
    small = {task.id: task for task in SOURCE.tasks("train")}
    right = [(small[task.id], item) for task, item in huge_demonstrations() if item.outcome is Outcome.CORRECT]
    assert len(right) == 3 * len(small)
    # The speeds of a frame differ in the launch, its tasks in the steps.
    chosen = [pair for index, pair in enumerate(right) if index % 3 == index // 3 % 3]
    assert judges.mismatches(chosen, "triton") == []


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a GPU")
def test_gpu_demonstrations_have_their_declared_outcome_on_a_gpu(judges: Judges) -> None:
    """Every kind of flaw at least once, and all demonstrations of three tasks of different frames."""
    names = ("layer_norm", "total_of_squares", "linear")
    found = huge_demonstrations()
    flaws = {item.flaw: (task, item) for task, item in found if item.flaw}
    chosen = [*flaws.values(), *((task, item) for task, item in found if task.name in names)]
    assert judges.mismatches(chosen, "triton", mode="gpu") == []


@pytest.mark.parametrize("size", ["large", "huge"])
def test_larger_size_changes_only_numbers(size: Literal["large", "huge"]) -> None:
    large = StarterTasks(StarterOptions(practice=50, size=size))
    for split in SOURCE.splits():
        for small, big in zip(SOURCE.tasks(split), large.tasks(split), strict=True):
            assert (small.id, structure(small)) == (big.id, structure(big))
            assert small.sha256 != big.sha256
            parse_task_source(big.reference, big.id)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_nothing_passes_without_the_work(task: Task) -> None:
    """The audit accepts no zeros, constants or returned inputs, and reports nothing except small inputs."""
    pytest.importorskip("torch")
    from kernelrl_core.api.evaluators import EvaluationSettings
    from kernelrl_judge.task.audit import audit

    assert audit(task.reference, task.id, EvaluationSettings(), "cpu")["flags"].keys() <= {"tiny"}


@pytest.mark.slow
def test_composed_demonstrations_are_correct(judges: Judges) -> None:
    """Tasks that have every part together, in the interpreter: one speed each, every speed for some of each frame."""
    source = ComposeTasks(ComposeOptions())
    chosen: list[Task] = []
    missing = set(PARTS)
    while missing:
        fullest = max(source.tasks("train"), key=lambda task: len(missing.intersection(task.name.split("-"))))
        missing.difference_update(fullest.name.split("-"))
        chosen.append(fullest)
    pairs = [(task, source.demonstrations(task)[index % 3]) for index, task in enumerate(chosen)]
    assert judges.mismatches(pairs, "triton") == []


@pytest.mark.slow
def test_at_least_90_percent_of_generated_tasks_have_a_correct_first_demonstration(judges: Judges) -> None:
    """Generated compositions may divide by values close to zero."""
    pairs = [(task, SOURCE.demonstrations(task)[0].source) for task in SOURCE.tasks("practice")[:30]]
    outcomes = judges.outcomes(pairs)
    assert outcomes.count(Outcome.CORRECT) >= 0.9 * len(outcomes)
