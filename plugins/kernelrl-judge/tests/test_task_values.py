"""Values that a task may hold: each is carried to the candidate and back, or it is an error of the task."""

from __future__ import annotations

import attrs
import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationSettings, Outcome
from kernelrl_judge.task.audit import audit
from kernelrl_testing.waiting import require_times

PREAMBLE = """\
import argparse, collections, dataclasses, enum, functools, os, types
import numpy as np
import torch
import torch.nn as nn

Pair = collections.namedtuple("Pair", "left right")

class Mode(enum.IntEnum):
    DOUBLE = 2

class Colour(enum.Enum):
    RED = 2

@dataclasses.dataclass
class Config:
    scale: float = 2.0

@dataclasses.dataclass
class Computed:
    half: float = 1.0

    @property
    def scale(self):
        return 2 * self.half
"""


@attrs.frozen
class SmallTask:
    """A task whose candidate is a copy of its model, except for `candidate`."""

    init: str = "[]"
    inputs: str = "[torch.randn(6, 5)]"
    names: str = "x"
    result: str = "x * 2.0"
    construct: str = "pass"
    """First line of the constructor's body; its arguments are `args` and `kwargs`."""
    candidate: str = ""
    """Result of the candidate; empty: that of the model."""

    def reference(self) -> str:
        model = self._model("Model", self.result)
        functions = {"get_inputs": self.inputs, "get_init_inputs": self.init}
        defined = "\n".join(f"def {name}():\n    return {result}\n" for name, result in functions.items())
        return f"{PREAMBLE}\n{model}\n{defined}"

    def kernel(self) -> str:
        return f"{PREAMBLE}\n{self._model('ModelNew', self.candidate or self.result)}"

    def _model(self, name: str, result: str) -> str:
        return f"""
class {name}(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        {self.construct}
    def forward(self, {self.names}):
        return {result}
"""


def evaluated(evaluations: Evaluations, task: SmallTask, **fields: object) -> Evaluation:
    return evaluations.evaluate(task.kernel(), task.reference(), **fields)


DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "uint16", "uint32", "uint64", "bool")


@pytest.mark.parametrize("dtype", [*DTYPES, "int8", "float16", "bfloat16", "complex64", "complex128"])
def test_a_tensor_of_each_dtype_is_input_and_output(evaluations: Evaluations, dtype: str) -> None:
    drawn = "torch.randn(6, 5)" if dtype.startswith(("float", "bfloat", "complex")) else "torch.randint(0, 2, (6, 5))"
    task = SmallTask(
        inputs=f"[{drawn}.to(torch.{dtype}), torch.randn(6, 5)]", names="x, y", result="(x.flip(0), y * 2)"
    )
    assert evaluated(evaluations, task).outcome is Outcome.CORRECT
    wrong = attrs.evolve(task, candidate="(x.flip(0).roll(1, 1), y * 2)")
    assert evaluated(evaluations, wrong).outcome is Outcome.INCORRECT


@pytest.mark.parametrize(
    "inputs",
    [
        "torch.rand(())",
        "torch.randn(1)[0]",
        "torch.randn(3, 1).sum()",
        "torch.randn(0, 4)",
        "torch.randn(1, 2, 1, 2, 1, 2, 1, 2)",
        "torch.randn(4, 4).T",
        "torch.randn(4, 4, dtype=torch.complex64).conj()",
    ],
)
def test_a_tensor_of_each_layout_is_an_input(evaluations: Evaluations, inputs: str) -> None:
    assert evaluated(evaluations, SmallTask(inputs=f"[{inputs}]")).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    "task",
    [
        SmallTask(
            inputs="[{'a': [torch.randn(3), (torch.randn(2), 3)], 1: None}]", result="x['a'][0] * 2 + x['a'][1][1]"
        ),
        SmallTask(inputs="[Pair(torch.randn(3), torch.randn(3))]", result="x.left - x.right"),
        SmallTask(inputs="[torch.randn(3, 4), np.int64(1)]", names="x, axis", result="x.sum(axis)"),
        SmallTask(inputs="[torch.randn(3), torch.float64]", names="x, dtype", result="x.to(dtype)"),
        SmallTask(result="{'b': x + 1, 'a': x * 2}", candidate="{'a': x * 2, 'b': x + 1}"),
        SmallTask(result="{0: x, (1, 'a'): x * 2, None: 3}", candidate="{None: 3, (1, 'a'): x * 2, 0: x}"),
        SmallTask(result="Pair(x + 1, x - 1)", candidate="(x + 1, x - 1)"),
        SmallTask(result="x.max(1)"),
        SmallTask(result="(x * 2, x.shape, x.dtype, x.device, None, 'text')"),
        SmallTask(result="(x * 2, float(x.sum()), x.numel(), complex(1, float(x[0, 0])), True)"),
        SmallTask(result="[np.float32(3.0), x, {'n': np.int64(4)}]", candidate="[3.0, x, {'n': 4}]"),
        SmallTask(result="collections.OrderedDict(a=x * 2)", candidate="dict(a=x * 2)"),
    ],
    ids=lambda task: f"{task.inputs} -> {task.result}",
)
def test_values_in_containers_are_carried(evaluations: Evaluations, task: SmallTask) -> None:
    assert evaluated(evaluations, task).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("init", "result"),
    [
        ("None", "x * 2"),
        ("{'scale': 3.0}", "x * self.kwargs['scale']"),
        ("[torch.float64]", "x.to(self.args[0])"),
        ("[torch.device('cpu')]", "x.to(self.args[0]) * 2"),
        ("[torch.channels_last, torch.strided]", "x * (2 if self.args[0] is torch.channels_last else 3)"),
        ("[np.float32(2.0), np.bool_(True), np.str_('a')]", "x * self.args[0]"),
        ("[types.SimpleNamespace(scale=2.0, more=types.SimpleNamespace(n=[1, 2]))]", "x * self.args[0].more.n[1]"),
        ("[argparse.Namespace(scale=2.0)]", "x * self.args[0].scale"),
        ("[Config(3.0)]", "x * self.args[0].scale"),
        ("[Mode.DOUBLE]", "x * self.args[0]"),
        ("[{Mode.DOUBLE: 'a'}]", "x * [*self.args[0]][0]"),
        ("[range(2, 9, 3)]", "x * self.args[0][1]"),
        ("[slice(1, None, 2)]", "x[self.args[0]] * 2"),
        ("[{3, 4}, frozenset({(1, 2)})]", "x * max(self.args[0])"),
        ("[1 + 2j]", "x * self.args[0]"),
        ("[Pair(2.0, None)]", "x * self.args[0].left"),
        ("[torch.Size([2, 3])]", "x * self.args[0].numel()"),
        ("[torch.randn(5), [torch.ones(5, dtype=torch.float8_e5m2)]]", "x * self.args[0] * self.args[1][0].float()"),
    ],
)
def test_arguments_of_the_constructor_are_carried(evaluations: Evaluations, init: str, result: str) -> None:
    task = SmallTask(init=init, result=result, construct="self.args, self.kwargs = args, kwargs")
    assert evaluated(evaluations, task).outcome is Outcome.CORRECT


@pytest.mark.parametrize("layer", ["nn.LazyLinear(3)", "nn.Linear(5, 3)"])
def test_lazy_parameters_get_the_shapes_of_the_inputs(evaluations: Evaluations, layer: str) -> None:
    task = SmallTask(construct="self.layer = nn.LazyLinear(3)", result="self.layer(x)")
    kernel = attrs.evolve(task, construct=f"self.layer = {layer}").kernel()
    assert evaluations.evaluate(kernel, task.reference()).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (SmallTask(init="[1, lambda x: x]"), r"get_init_inputs\(\) argument 2 is a function"),
        (SmallTask(init="[functools.partial(torch.sum, dim=0)]"), r"argument 1 is a value of type partial"),
        (SmallTask(init="[torch.relu]"), "argument 1 is a value of type builtin_function"),
        (SmallTask(init="[nn.Linear]"), "argument 1 is the class Linear"),
        (SmallTask(init="[nn.Linear(2, 2)]"), "argument 1 is a value of type Linear"),
        (SmallTask(init="{'mode': Colour.RED}"), "argument mode is a value of type Colour"),
        (SmallTask(init="[[Computed()]]"), r"argument 1\[0\] is a value of type Computed"),
        (SmallTask(init="[types.SimpleNamespace(f=print)]"), r"argument 1\.f is a value of type builtin_function"),
        (SmallTask(init="[torch.Generator()]"), "argument 1 is a value of type Generator"),
        (SmallTask(init="[(i for i in range(3))]"), "argument 1 is a value of type generator"),
        (SmallTask(init="[1 << 70]"), "argument 1 is an integer of more than 64 bits"),
        (SmallTask(init="['x' * 100_000]"), "argument 1 is a text of more than"),
        (SmallTask(init="[list(range(5000))]"), r"argument 1\[2047\] is one of more than 2048 values"),
        (SmallTask(init="3"), r"get_init_inputs\(\) failed"),
        (SmallTask(inputs="None"), r"get_inputs\(\) failed: TypeError"),
        (
            SmallTask(inputs="[torch.randn(2), np.zeros(3)]", names="x, y"),
            r"get_inputs\(\) value 2 is a value of type ndarray",
        ),
        (
            SmallTask(inputs="[torch.randn(2, 2).to_sparse()]"),
            r"get_inputs\(\) value 1 is a tensor of layout sparse_coo",
        ),
        (SmallTask(inputs="[torch.empty(2, device='meta')]"), r"value 1 is a tensor without memory"),
        (
            SmallTask(inputs="[torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8)]"),
            "value 1 is a quantised",
        ),
        (
            SmallTask(inputs="[torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])]"),
            "value 1 is a nested tensor",
        ),
        (SmallTask(result="[x, Config()]"), None),
        (SmallTask(result="[x, Colour.RED]"), r"output \[1\] of Model.forward\(...\) is a value of type Colour"),
        (SmallTask(result="x.to_sparse()"), r"the output of Model.forward\(...\) is a tensor of layout"),
        (SmallTask(result="(i for i in x)"), r"the output of Model.forward\(...\) is a value of type generator"),
        (SmallTask(result="{Colour.RED: x}"), "a dict with a key of type Colour"),
        (SmallTask(result="exit()"), r"Model.forward\(...\) failed: SystemExit"),
        (SmallTask(result="x @ x"), r"Model.forward\(...\) failed: RuntimeError"),
    ],
    ids=lambda value: f"{value.init} {value.inputs} {value.result}" if isinstance(value, SmallTask) else "",
)
def test_a_value_that_cannot_be_carried_is_an_error_of_the_task(
    evaluations: Evaluations, task: SmallTask, problem: str | None
) -> None:
    if problem is None:
        assert evaluated(evaluations, task).outcome is Outcome.INCORRECT
        return
    with pytest.raises(UsageError, match=problem) as raised:
        evaluated(evaluations, task)
    assert raised.value.message.startswith("task test/task: ")
    assert "\n" not in raised.value.message
    assert "without any kernel" not in raised.value.message


@pytest.mark.parametrize(
    "task", [SmallTask(init="[print]"), SmallTask(inputs="[print]"), SmallTask(result="x.to_sparse()")]
)
def test_an_audit_flags_a_task_with_a_value_that_cannot_be_carried(task: SmallTask) -> None:
    flags = audit(task.reference(), "mine", EvaluationSettings(), "cpu")["flags"]
    assert list(flags) == ["reference_fails"]
    assert "kernel can be given it" in flags["reference_fails"] or "cannot be compared" in flags["reference_fails"]


@pytest.mark.parametrize("place", ["import", "call"])
def test_a_reference_that_ends_its_process_is_an_error_of_the_task(evaluations: Evaluations, place: str) -> None:
    task = SmallTask(result="os._exit(3)" if place == "call" else "x")
    reference = task.reference() if place == "call" else f"import os\nos._exit(3)\n{task.reference()}"
    with pytest.raises(UsageError, match="its reference ends the process that runs it, without any kernel"):
        evaluations.evaluate(attrs.evolve(task, candidate="x").kernel(), reference)
    assert evaluated(evaluations, SmallTask()).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("candidate", "actual"),
    [
        ("(i for i in x)", "value of type generator"),
        ("{Colour.RED: x}", "keys"),
        ("1 << 70", "more than 64 bits"),
        ("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "nested too deeply"),
        ("list(range(100_000))", "too large"),
        ("x.to_sparse()", "layout sparse_coo"),
        ("np.zeros(3)", "value of type ndarray"),
        ("{'a': x}", "a dict with the keys 'a'"),
    ],
)
def test_an_output_that_cannot_be_carried_is_incorrect(evaluations: Evaluations, candidate: str, actual: str) -> None:
    found = evaluated(evaluations, SmallTask(candidate=candidate))
    assert (found.outcome, found.mismatch.kind if found.mismatch else "") == (Outcome.INCORRECT, "structure")
    assert actual in found.message


def test_a_dict_without_a_key_names_the_keys(evaluations: Evaluations) -> None:
    found = evaluated(evaluations, SmallTask(result="{'a': x, 'b': x}", candidate="{'a': x, 'c': x}"))
    assert found.outcome is Outcome.INCORRECT
    assert "expected a dict with the keys 'a', 'b', got a dict with the keys 'a', 'c'" in found.message


def test_timed_calls_carry_dicts_in_another_order_and_every_kind_of_tensor(evaluations: Evaluations) -> None:
    task = SmallTask(
        inputs="[Pair(torch.randn(64, 64), torch.randn(0, 3)), torch.randn(64).to(torch.float8_e5m2), {1: 2}]",
        names="pair, y, more",
        result="{'b': pair.left + 1, 'a': pair.left * more[1], 'c': [pair.right, y.view(8, 8).flip(0), 3]}",
        candidate="{'c': [pair.right * 1, y.view(8, 8).flip(0), 3], 'a': pair.left * more[1], 'b': pair.left + 1}",
    )
    found = evaluated(evaluations, task, backend="cpp", timing=True)
    assert (found.outcome, found.message) == (Outcome.CORRECT, "")
    require_times(found)
