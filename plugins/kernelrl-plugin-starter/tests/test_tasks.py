"""The starter tasks: what they are made of, and that nothing but an answer passes them."""

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

from kernelrl_core.errors import UsageError
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.types import Demonstration, Outcome, Task
from kernelrl_plugin_starter.catalogue import ENTRIES
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.cpp_flaws import CPP_SEMANTIC, CPP_SYNTACTIC
from kernelrl_plugin_starter.frames import read_reference
from kernelrl_plugin_starter.source import StarterTasks

SOURCE = StarterTasks(StarterOptions(practice=50))
TASKS = [task for split in ("train", "held_out") for task in SOURCE.tasks(split)]


class _Anonymous(ast.NodeTransformer):
    """Names by order of appearance, numbers all alike."""

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


def test_there_are_forty_tasks_and_more_in_three_levels_of_both_splits() -> None:
    assert len(TASKS) >= 40
    for split in ("train", "held_out"):
        assert {task.level for task in SOURCE.tasks(split)} == {1, 2, 3}
    assert len(SOURCE.tasks("train")) >= 24


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_is_in_kernelbench_format(task: Task) -> None:
    parse_task_source(task.reference, task.id)


def test_no_two_tasks_have_one_structure() -> None:
    structures = [structure(task) for task in TASKS]
    assert len(set(structures)) == len(structures)


def test_splits_share_no_task() -> None:
    splits = [{task.sha256 for task in SOURCE.tasks(split)} for split in SOURCE.splits()]
    assert sum(map(len, splits)) == len(set.union(*splits))


def test_practice_never_has_the_lines_of_a_task() -> None:
    known = {read_reference(task.reference).steps for task in TASKS}
    assert not known & {read_reference(task.reference).steps for task in SOURCE.tasks("practice")}


def test_only_train_and_practice_have_answers() -> None:
    assert all(SOURCE.demonstrations(task) for split in ("train", "practice") for task in SOURCE.tasks(split))
    assert not any(SOURCE.demonstrations(task) for task in SOURCE.tasks("held_out"))


@pytest.mark.parametrize("share", [0.25, 0.4])
def test_the_right_answers_have_their_share(share: float) -> None:
    source = StarterTasks(StarterOptions(practice=0, right_share=share))
    for task, backend in itertools.product(source.tasks("train"), ("triton", "cpp")):
        answers = [answer for answer in source.demonstrations(task) if answer.backend == backend]
        assert sum(answer.weight for answer in answers) == pytest.approx(1.0)
        right = sum(answer.weight for answer in answers if answer.outcome is Outcome.CORRECT)
        assert right == pytest.approx(share)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        StarterTasks(StarterOptions(names=("softmx",)))


# --- verdicts -------------------------------------------------------------------------------------------------------


def recipe(backend: str = "triton", mode: str = "interpreter") -> object:
    from kernelrl_core.planning.load import recipe_from_mapping
    from kernelrl_core.plugins.registry import registry

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
    """Environments that several tests share: to start a judge takes seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.Runner()
        self._environments: dict[tuple[str, str], Any] = {}

    def outcomes(
        self, pairs: list[tuple[Task, str]], backend: str = "triton", mode: str = "interpreter"
    ) -> list[Outcome]:
        """Outcomes of sources, each against its task, with the real judge."""
        return self._loop.run(self._judged(pairs, backend, mode))

    def misjudged(
        self, answers: list[tuple[Task, Demonstration]], backend: str, mode: str = "interpreter"
    ) -> list[str]:
        """The answers that do not end as they say."""
        pairs = [(task, answer.source) for task, answer in answers]
        outcomes = self.outcomes(pairs, backend, mode)
        return [
            f"{task.id} {answer.flaw or 'right'}: {outcome}, not {answer.outcome}"
            for (task, answer), outcome in zip(answers, outcomes, strict=True)
            if outcome is not answer.outcome
        ]

    def close(self) -> None:
        for environment in self._environments.values():
            self._loop.run(environment.aclose())
        self._loop.close()

    async def _judged(self, pairs: list[tuple[Task, str]], backend: str, mode: str) -> list[Outcome]:
        from kernelrl_core.environment.environment import Environment
        from kernelrl_core.plugins.registry import registry
        from kernelrl_core.prompts.extraction import extract_file
        from kernelrl_core.types import Prompt, Reply, SampleId

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


def answers_in(source: StarterTasks, backend: str) -> list[tuple[Task, Demonstration]]:
    return [
        (task, answer)
        for task in source.tasks("train")
        for answer in source.demonstrations(task)
        if answer.backend == backend
    ]


FRAMES = {entry.name: entry.frame for entry in ENTRIES}
OF_A_FRAME = {"missing_import", "unknown_block", "missing_argument", "wrong_shape", "wrong_dtype"}
"""Flaws that stand beside the steps and the sizes: what a frame computes does not change how they end."""


@pytest.mark.slow
def test_answers_end_as_they_say(judges: Judges) -> None:
    """Flaws of a frame in one of its tasks; `KERNELRL_TEST_ALL_ANSWERS=1` judges them in all of them."""
    answers = answers_in(SOURCE, "triton")
    once = {(FRAMES[task.name], answer.flaw): (task, answer) for task, answer in answers if answer.flaw in OF_A_FRAME}
    others = [(task, answer) for task, answer in answers if answer.flaw not in OF_A_FRAME]
    chosen = answers if "KERNELRL_TEST_ALL_ANSWERS" in os.environ else [*others, *once.values()]
    assert judges.misjudged(chosen, "triton") == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_answers_end_as_they_say(judges: Judges) -> None:
    """A task with all its answers, in the large size, and every kind of flaw at least once."""
    source = StarterTasks(StarterOptions(practice=0, size="large"))
    answers = answers_in(source, "cpp")
    flaws = {answer.flaw: (task, answer) for task, answer in answers if answer.flaw}
    assert set(flaws) == {flaw.name for flaw in (*CPP_SEMANTIC, *CPP_SYNTACTIC)}
    whole = [(task, answer) for task, answer in answers if task.name == "layer_norm"]
    others = flaws.keys() - {answer.flaw for _, answer in whole}
    assert judges.misjudged([*whole, *(flaws[flaw] for flaw in sorted(others))], "cpp") == []


ONE_OF_EACH_FRAME = {entry.frame: entry.name for entry in ENTRIES if entry.split == "train"}


def huge_answers() -> list[tuple[Task, Demonstration]]:
    return answers_in(StarterTasks(StarterOptions(practice=0, size="huge")), "triton")


@pytest.mark.slow
def test_answers_for_a_gpu_are_right_on_small_inputs_too(judges: Judges) -> None:
    """In the interpreter: fast, middling and slow ones to one task of each frame, and one of them to every other."""
    small = {task.id: task for task in SOURCE.tasks("train")}
    right = [(small[task.id], answer) for task, answer in huge_answers() if answer.outcome is Outcome.CORRECT]
    assert len(right) == 3 * len(small)
    # Paces differ in how a frame is launched, and tasks in the steps within.
    chosen = [
        pair
        for index, pair in enumerate(right)
        if index % 3 == index // 3 % 3 or pair[0].name in ONE_OF_EACH_FRAME.values()
    ]
    assert judges.misjudged(chosen, "triton") == []


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a GPU")
def test_answers_for_a_gpu_end_as_they_say_there(judges: Judges) -> None:
    """Every kind of flaw at least once, and all answers to one task of each frame."""
    names = ("layer_norm", "total_of_squares", "linear")
    answers = huge_answers()
    flaws = {answer.flaw: (task, answer) for task, answer in answers if answer.flaw}
    chosen = [*flaws.values(), *((task, answer) for task, answer in answers if task.name in names)]
    assert judges.misjudged(chosen, "triton", mode="gpu") == []


@pytest.mark.parametrize("size", ["large", "huge"])
def test_a_larger_size_changes_nothing_but_sizes(size: Literal["large", "huge"]) -> None:
    large = StarterTasks(StarterOptions(practice=50, size=size))
    for split in SOURCE.splits():
        for small, big in zip(SOURCE.tasks(split), large.tasks(split), strict=True):
            assert (small.id, structure(small)) == (big.id, structure(big))
            assert small.sha256 != big.sha256
            parse_task_source(big.reference, big.id)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_nothing_passes_without_the_work(task: Task) -> None:
    """The audit finds that neither zeros nor constants nor an input pass, and no other fault but that it is small."""
    pytest.importorskip("torch")
    from kernelrl_core.types import EvaluationSettings
    from kernelrl_judge.auditing import audit

    assert audit(task.reference, task.id, EvaluationSettings(), "cpu")["flags"].keys() <= {"tiny"}


@pytest.mark.slow
def test_practice_is_right_nearly_always(judges: Judges) -> None:
    """Made-up compositions may divide by next to nothing; nine in ten of the right answers must hold all the same."""
    pairs = [(task, SOURCE.demonstrations(task)[0].source) for task in SOURCE.tasks("practice")]
    outcomes = judges.outcomes(pairs)
    assert outcomes.count(Outcome.CORRECT) >= 0.9 * len(outcomes)


def test_the_readme_lists_every_task() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert [task.id for task in TASKS if f"| `{task.id}` | {task.split} |" not in readme] == []
