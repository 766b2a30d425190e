"""The guard against leaks, and `train.decontaminate`."""

from __future__ import annotations

import attrs
import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.tasks.leaks import LeakGuard, address_of, decontaminated
from kernelrl_core.tasks.selection import held_out_tasks, training_tasks
from kernelrl_core.types import Task
from kernelrl_testing.fakes import FakeTasks


def reference(expression: str, name: str = "x") -> str:
    return (
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, {name}):\n        return {expression}\n"
        "def get_inputs():\n    return [torch.randn(4, 4)]\ndef get_init_inputs():\n    return []\n"
    )


SIN = Task("kernelbench/1/7", reference("torch.sin(x)"), level=1)
COS = Task("kernelbench/2/7", reference("torch.cos(x)"), "held_out", level=2)
GUARD = LeakGuard([COS])


def test_the_solution_of_the_task_is_a_leak() -> None:
    assert GUARD.leak(SIN, reference("v.sin()", "v"), "") == "leak_task"
    assert GUARD.leak(SIN, SIN.reference, "anything") == "leak_task"


def test_the_solution_of_a_held_out_task_is_a_leak() -> None:
    assert GUARD.leak(SIN, reference("v.cos()", "v"), "") == "leak_held_out"


def test_an_example_with_the_outputs_of_a_task_is_a_leak() -> None:
    other = reference("torch.tanh(x)")
    assert GUARD.leak(SIN, other, "", (SIN.sha256,)) == "leak_task"
    assert GUARD.leak(SIN, other, "", ("another task", COS.sha256)) == "leak_held_out"
    assert GUARD.leak(SIN, other, "", ("another task",)) == ""


def test_another_example_is_no_leak() -> None:
    assert GUARD.leak(SIN, reference("torch.tanh(x)"), "level_1/8_Tanh") == ""
    assert GUARD.leak(SIN, reference("torch.sin(x) * 2"), "") == ""
    assert LeakGuard([]).leak(SIN, COS.reference, "") == ""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("level_1/7_Sine", "leak_task"),
        ("kernelbench/1/7", "leak_task"),
        ("level2/7_Cosine.py", "leak_held_out"),
        ("level_2/task_7/cosine_fused", "leak_held_out"),
        ("level_1/17_Sine", ""),
        ("level_3/7_Sine", ""),
        ("starter/1/7", ""),
        ("Sine7", ""),
    ],
)
def test_level_and_number_of_a_task_are_a_leak_whatever_the_reference(name: str, found: str) -> None:
    assert GUARD.leak(SIN, reference("torch.tanh(x)"), name) == found


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("kernelbench/1/19", ("kernelbench", 1, "19")),
        ("kernelbench/1/19_ReLU", ("kernelbench", 1, "19")),
        ("KernelBench/level1/19_ReLU.py", ("kernelbench", 1, "19")),
        ("level_2/007_Cosine", ("kernelbench", 2, "7")),
        ("level_2/cuda/12_Gemm", ("kernelbench", 2, "12")),
        ("level_2/problem_12", ("kernelbench", 2, "12")),
        ("starter/2/softmax", ("starter", 2, "softmax")),
        ("softmax", None),
        ("mine/softmax", None),
        ("", None),
    ],
)
def test_names_with_a_level_have_an_address(name: str, address: tuple[str, int, str] | None) -> None:
    assert address_of(name) == address


TASKS = [
    Task("a", reference("torch.sin(x)")),
    Task("b", reference("torch.exp(x)")),
    Task("c", reference("torch.sin(x) + 1")),
    Task("d", reference("torch.exp(y)", "y"), "held_out"),
    Task("e", reference("torch.tanh(x)"), "held_out"),
]


def test_training_excludes_tasks_that_nearly_equal_a_held_out_task_and_names_both() -> None:
    kept, line = decontaminated(TASKS[:3], TASKS[3:])
    assert [task.id for task in kept] == ["a", "c"]
    assert line == "1 of 3 training tasks equal held-out tasks and are excluded (d: b)"
    assert decontaminated(TASKS[:1], TASKS[3:]) == (TASKS[:1], None)


@pytest.mark.parametrize("audited", ["training task", "held-out task"])
def test_training_excludes_a_task_whose_outputs_an_audit_found_equal(audited: str) -> None:
    training, held_out = TASKS[0], TASKS[4]
    if audited == "training task":
        training = attrs.evolve(training, equals=(held_out.sha256,))
    else:
        held_out = attrs.evolve(held_out, equals=(training.sha256,))
    kept, line = decontaminated([training, TASKS[2]], [held_out])
    assert [task.id for task in kept] == ["c"]
    assert line == "1 of 2 training tasks equal held-out tasks and are excluded (e: a)"


def test_decontaminate_is_on_by_default_and_can_be_switched_off() -> None:
    source = FakeTasks(TASKS)
    tasks, line = training_tasks(source, TrainSettings(), "held_out")
    assert [task.id for task in tasks] == ["a", "c"]
    assert line is not None
    assert line.endswith("(d: b); train.decontaminate=false includes them")
    assert training_tasks(source, TrainSettings(decontaminate=False), "held_out") == (TASKS[:3], None)


def test_quarantine_and_decontamination_are_reported_on_a_line_each() -> None:
    source = FakeTasks([attrs.evolve(TASKS[0], flags=("zeros_pass",)), *TASKS[1:]])
    tasks, line = training_tasks(source, TrainSettings(), "held_out")
    assert [task.id for task in tasks] == ["c"]
    assert line is not None
    assert [text.partition(" (")[0] for text in line.splitlines()] == [
        "1 of 3 tasks are in quarantine",
        "1 of 2 training tasks equal held-out tasks and are excluded",
    ]


def test_a_split_without_other_tasks_is_an_error() -> None:
    source = FakeTasks([TASKS[1], TASKS[3]])
    with pytest.raises(UsageError, match=r"1 of 1 training tasks equal .*\(d: b\)") as raised:
        training_tasks(source, TrainSettings(), "held_out")
    assert raised.value.fix == "train.decontaminate=false trains on them anyway"


@pytest.mark.parametrize("held_out", [None, "train", "unknown"])
def test_nothing_is_held_out_if_the_splits_are_the_same_or_the_split_is_unknown(held_out: str | None) -> None:
    source = FakeTasks(TASKS)
    assert held_out_tasks(source, TrainSettings(), held_out) == ()
    assert training_tasks(source, TrainSettings(), held_out) == (TASKS[:3], None)
