"""References of others, compared with tasks by their outputs, and those that attack the process that calls them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelrl_judge.behaviour.equality import NOT_RUN, ProbedTasks, equal_among, equal_tasks, probe_tasks
from kernelrl_judge.behaviour.runner import ReferenceProgram, ReferenceRunner
from kernelrl_judge.behaviour.sizes import resized

HEAD = "import os, signal, time\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def reference(result: str, *, inputs: str = "torch.randn(6, 50)", init: str = "pass", parameters: str = "x") -> str:
    """A reference that returns an expression of its inputs; `init` is a statement of its constructor."""
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {parameters}):\n        return {result}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


TWO = {"parameters": "x, y", "inputs": "torch.randn(6, 50), torch.randn(6, 50)"}
TASKS = {
    "softmax": reference("torch.softmax(x, 1)"),
    "relu of positive inputs": reference("torch.relu(x)", inputs="torch.rand(6, 50)"),
    "swiglu": reference("F.silu(x) * y", **TWO),
    "linear": reference("self.m(x)", init="self.m = nn.Linear(50, 12)"),
    "norm": reference("self.m(x)", init="self.m = nn.InstanceNorm1d(6)", inputs="torch.randn(4, 6, 50)"),
    "gate": reference("self.w * x.sum(1)", init="self.w = nn.Parameter(torch.zeros(1))"),
    "constant": reference("torch.zeros(3) + 1 + 0 * x.sum()"),
    "fails": reference("x.no_such_method()"),
    "large": reference("torch.sin(x)", inputs="torch.randn(16384, 65536)"),
}


@pytest.fixture(scope="module")
def runner() -> Iterator[ReferenceRunner]:
    with ReferenceRunner(jobs=1, limit_s=4.0) as found:
        yield found


@pytest.fixture(scope="module")
def tasks(runner: ReferenceRunner) -> ProbedTasks:
    return probe_tasks(runner, TASKS)


def test_tasks_that_fail_or_return_a_constant_are_not_compared(tasks: ProbedTasks) -> None:
    assert sorted(tasks.unprobed) == ["constant", "fails"]


REFERENCES = {
    "softmax in double precision": (
        reference("torch.exp(x.double()).div(torch.exp(x.double()).sum(-1, True)).float()"),
        ("softmax",),
    ),
    "softmax of another dimension": (reference("torch.softmax(x, 0)"), ()),
    "softmax with other inputs of its own": (
        reference("torch.nn.Softmax(-1)(x)", inputs="torch.rand(4, 4, 4, 4)"),
        ("softmax",),
    ),
    "identity, which equals relu for positive inputs": (reference("x * 1.0"), ()),
    "relu as a sum": (reference("(x + x.abs()) / 2"), ("relu of positive inputs",)),
    "relu with an upper bound": (reference("F.hardtanh(x, 0.0, 5.0)"), ()),
    "swiglu by hand": (reference("x * y / (1 + torch.exp(-x))", **TWO), ("swiglu",)),
    "swiglu with exchanged inputs": (reference("F.silu(y) * x", **TWO), ()),
    "linear by hand": (
        reference(
            "x @ self.w.t() + self.b",
            init="self.b, self.w = nn.Parameter(torch.ones(12)), nn.Parameter(torch.ones(12, 50))",
        ),
        ("linear",),
    ),
    "linear with weights that its constructor transposed": (
        reference(
            "torch.addmm(self.b, x, self.w)",
            init="m = nn.Linear(50, 12); self.b = m.bias; self.register_buffer('w', m.weight.detach().t() * 1.0)",
        ),
        ("linear",),
    ),
    "norm with weights that have no effect at first": (
        reference("self.m(x)", init="self.m = nn.InstanceNorm1d(6, affine=True)", inputs="torch.randn(4, 6, 50)"),
        ("norm",),
    ),
    "another gate that is 0 at first": (
        reference("self.w * x.amax(1)", init="self.w = nn.Parameter(torch.zeros(1))"),
        (),
    ),
    "one value for every input": (reference("torch.zeros(3) + 1"), ()),
    "no tensor": (reference("self"), ()),
    "a large task": (reference("torch.cos(x - torch.pi / 2)"), ("large",)),
}


def test_a_reference_computes_the_tasks_whose_outputs_it_has(runner: ReferenceRunner, tasks: ProbedTasks) -> None:
    found = equal_tasks(runner, tasks, [source for source, _ in REFERENCES.values()])
    assert dict(zip(REFERENCES, found, strict=True)) == {name: equal for name, (_, equal) in REFERENCES.items()}


def test_tasks_that_compute_the_same_are_found_among_themselves(runner: ReferenceRunner) -> None:
    tasks = {"abs": reference("x.abs()"), "square root": reference("(x * x).sqrt()"), "relu": reference("x.relu()")}
    assert equal_among(runner, tasks) == {"abs": ("square root",), "square root": ("abs",), "relu": ()}


HOSTILE = {
    "hangs": reference("time.sleep(600)"),
    "hangs when it is loaded": f"{HEAD}while True: pass\n{TASKS['softmax']}",
    "allocates without end": reference("[torch.ones(1 << 24) for _ in range(10**6)]"),
    "ends its process": reference("os._exit(0)"),
    "kills its parent": reference("(os.kill(os.getppid(), signal.SIGKILL), time.sleep(600))"),
    "kills every process": reference("(os.kill(-1, signal.SIGKILL), time.sleep(600))"),
    "starts processes": reference("[os.fork() for _ in range(9)]"),
    "writes to every descriptor": reference("[os.write(n, b'null\\n' * 99) for n in range(3, 64)]"),
    "raises": reference("1 / 0"),
    "does not parse": "class Model(",
    "has no module": "x = 1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reference_costs_one_result(name: str, runner: ReferenceRunner, tasks: ProbedTasks) -> None:
    others = [TASKS["softmax"], HOSTILE[name], TASKS["swiglu"]]
    assert equal_tasks(runner, tasks, others) == [("softmax",), NOT_RUN, ("swiglu",)]


def test_a_reference_that_changes_torch_changes_no_other_result(runner: ReferenceRunner, tasks: ProbedTasks) -> None:
    changing = f"{HEAD}torch.softmax = lambda *_: None\nF.silu = torch.softmax\n{TASKS['swiglu']}"
    found = equal_tasks(runner, tasks, [changing, TASKS["softmax"], TASKS["swiglu"]])
    assert found == [NOT_RUN, ("softmax",), ("swiglu",)]


def test_a_reference_sees_no_file_of_the_user_and_no_network(runner: ReferenceRunner) -> None:
    found = list(
        runner.run(
            [
                ReferenceProgram(
                    reference("x", inputs="torch.tensor([len(os.listdir('/root')) if os.path.exists('/root') else 0])"),
                    None,
                ),
                ReferenceProgram(reference("x", inputs="__import__('socket').socket()"), None),
            ],
            (),
        )
    )
    assert found[0]["inputs"]["list"][0]["shape"] == [1]
    assert found[1] is None


def test_sizes_are_replaced_wherever_they_occur() -> None:
    source = (
        "WIDTH = 1024\nclass Model:\n    width = 1024\n    groups = 8\n"
        "def get_inputs():\n    return [(WIDTH, 4096, 8)]\n"
    )
    smaller = resized(source, (12, False))
    assert smaller is not None
    assert "WIDTH = 12\n" in smaller
    assert "width = 12\n" in smaller
    assert "groups = 8\n" in smaller
    assert "(WIDTH, 16, 8)" in smaller
    assert resized("WIDTH = 4\n", (8, True)) is None
    assert resized("class Model(", (8, True)) is None
