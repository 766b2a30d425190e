"""The audit of a task: each flag on a task written for it, and the input overlays that fix a task."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_core.api.tasks import FLAGS, Task
from kernelrl_judge.client.auditor import Auditor

torch = pytest.importorskip("torch")

from kernelrl_judge.task.audit import audit  # noqa: E402
from kernelrl_judge.task.domain import AS_DRAWN, Domain  # noqa: E402
from kernelrl_judge.task.overlays import OVERLAYS, overlaid  # noqa: E402


def task(forward: str, inputs: str = "torch.randn(8, 16)", init: str = "", names: str = "x") -> str:
    return f"""
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init or "pass"}
    def forward(self, {names}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def found(source: str, **settings: Any) -> dict[str, Any]:
    return audit(source, "task", EvaluationSettings(**settings), "cpu")


def flags(source: str, **settings: Any) -> set[str]:
    """Flags except `tiny`, which all of these small tasks have."""
    return set(found(source, **settings)["flags"]) - {"tiny"}


LINEAR = "self.layer = torch.nn.Linear(16, 16)"
PAIR = "torch.rand(8, 16), torch.rand(8, 16)"
FP8 = "torch.randn(8, 16).to(torch.float8_e4m3fn)"
COMPLEX = "torch.randn(8, 16, dtype=torch.complex64)"
COMPLEX32 = f"{COMPLEX}.to(torch.complex32)"
ROUNDED_LAYER = "self.w = torch.nn.Parameter(torch.randn(16, 16).to(torch.float8_e4m3fn), requires_grad=False)"
COMPLEX_LAYER = "self.w = torch.nn.Parameter(torch.randn(16, 16, dtype=torch.complex64))"
HALF_LAYER = "self.w = torch.nn.Parameter(torch.randn(64, dtype=torch.float16))"
QUANTISED = "s = x.abs().amax(1, keepdim=True) / 127; return torch.round(x / s).to(torch.int8), s"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (task("return torch.relu(x)"), set()),
        (task("return self.layer(x)", init=LINEAR), set()),
        # The output depends on weights that are 1 and biases that are 0 for every seed.
        (task("return self.layer(x)", init="self.layer = torch.nn.LayerNorm(16)"), set()),
        (task("return x - x"), {"zeros_pass", "constant_pass", "input_blind"}),
        (task("return torch.softmax(x[:, :1], 1)"), {"constant_pass", "input_blind"}),
        (task("return (x > -9).to(torch.int64)"), {"constant_pass", "input_blind"}),
        (task("return torch.relu(x)", "torch.rand(8, 16)"), {"identity_pass"}),
        # Each output copies an input: another one, the same one, in another order, in another structure.
        (task("return F.relu(x), F.relu(y)", PAIR, names="x, y"), {"identity_pass"}),
        (task("return F.relu(y), x.abs()", PAIR, names="x, y"), {"identity_pass"}),
        (task("return F.relu(x), x.abs()", PAIR, names="x, y"), {"identity_pass"}),
        (task("return {'b': [y.abs()], 'a': (x.abs(), 7)}", PAIR, names="x, y"), {"identity_pass"}),
        (task("return F.relu(x), F.relu(y)", "torch.rand(8, 16), torch.rand(4)", names="x, y"), {"identity_pass"}),
        # Inputs of other shapes and dtypes come first.
        (task("return y.abs()", "torch.rand(4).double(), torch.rand(4)", names="x, y"), {"identity_pass"}),
        # One of the outputs copies no input.
        (task("return F.relu(x), x * y", PAIR, names="x, y"), set()),
        (task("return F.relu(x), y.double()", PAIR, names="x, y"), set()),
        (task("return x + y, F.relu(y)", PAIR, names="x, y"), set()),
        # The output is no constant and does not depend on the input.
        (task("return torch.arange(16.0) + 0 * x"), {"input_blind"}),
        (task("return x + 1e-9 * self.layer(x)", init=LINEAR), {"identity_pass", "weight_blind"}),
        (task("return x.sin() + 1e-9 * self.layer(x)", init=LINEAR), {"weight_blind"}),
        (task("return torch.dropout(x, 0.5, True)"), {"nondeterministic"}),
        (task("return x - y", "torch.randn(16), torch.randn(16, 1)", names="x, y"), {"accidental_broadcast"}),
        (task("return x * y", "torch.randn(16, 16), torch.randn(16)", names="x, y"), {"accidental_broadcast"}),
        (task("return x[:, None] - y[None, :]", "torch.randn(16), torch.randn(16)", names="x, y"), set()),
        (task("return x * y", "torch.randn(8, 16), torch.full((8, 16), 0.5)", names="x, y"), {"fixed_input"}),
        (task("return x[:, y] * 2", "torch.randn(8, 16), torch.arange(15, -1, -1)", names="x, y"), {"fixed_input"}),
        (task("return torch.where(x > 0, x, x * y)", "torch.randn(8, 16), 0.3", names="x, y"), {"fixed_input"}),
        (task("return x.sum(y)", "torch.randn(8, 16), 1", names="x, y"), {"fixed_number"}),
        (task("return x[:, y] * 2", "torch.randn(8, 16), torch.randint(2, (3,))", names="x, y"), set()),
        (task("return x @ y", "torch.randn(8, 8), torch.diag(torch.randn(8))", names="x, y"), {"structured_input"}),
        (task("return x @ y.tril()", "torch.randn(8, 8), torch.randn(8, 8).tril()", names="x, y"), set()),
        (task("return x + y", "torch.randn(16), torch.randn(16).sort()[0]", names="x, y"), {"structured_input"}),
        (task("return x.float().cos() * torch.arange(1.0, 9.0)", "torch.randint(0, 8, (1,))"), {"few_inputs"}),
        (task("return torch.eye(8)[x].cos() * torch.arange(1.0, 9.0)", "torch.randint(0, 8, (64,))"), set()),
        (task("return torch.log(x)"), {"non_finite"}),
        # Dtypes with which torch does not compute, and those with two numbers per element.
        (task("return x.float() * 2", FP8), set()),
        (task("return (x * 2).to(torch.float8_e5m2)"), set()),
        (task("return x.clone()", FP8), {"identity_pass"}),
        (task("return (x * 0).to(torch.float8_e4m3fn)"), {"zeros_pass", "constant_pass", "input_blind"}),
        (task("return x.sin() + 0 * (x @ self.w.float())", init=ROUNDED_LAYER), {"weight_blind"}),
        (task("return x @ self.w.float()", init=ROUNDED_LAYER), set()),
        (task("return x * x", COMPLEX), set()),
        (task("return x.clone()", COMPLEX), {"identity_pass"}),
        (task("return x * 0 + (3 - 4j)", COMPLEX), {"constant_pass", "input_blind"}),
        (task("return x * x + 0 * (x @ self.w)", COMPLEX, COMPLEX_LAYER), {"weight_blind"}),
        (task("return x / 0", COMPLEX), {"non_finite"}),
        (task("return x.to(torch.complex64) * 2", COMPLEX32), set()),
        (task("return (x * 2).to(torch.complex32)", COMPLEX), set()),
        # Numbers of Python among the outputs.
        (task("return float(x.sum())"), set()),
        (task("return x.sin(), complex(x.sum(), 1)"), set()),
        (task("return 0.0 * float(x.sum())"), {"zeros_pass", "constant_pass", "input_blind"}),
        # Right kernels differ where rounding decides, but not where it decides nothing, or only few elements.
        (task("return torch.sin(x * 1e7)"), {"open_elements"}),
        (task(QUANTISED, "torch.randn(8, 512).bfloat16()"), {"open_elements"}),
        (task(QUANTISED, "torch.randn(8, 512)"), set()),
        (task("return (x * self.w).float().sum(1)", "torch.randn(8, 64).half()", HALF_LAYER), set()),
        (task("return torch.argsort(x, 1)", "torch.rand(8, 512).bfloat16()"), set()),
        (task("return torch.topk(x @ x.T, 4)", "torch.randn(64, 64)"), set()),
        (task("raise RuntimeError('broken')"), {"reference_fails"}),
    ],
)
def test_a_task_has_the_flags_that_it_was_written_for(source: str, expected: set[str]) -> None:
    assert flags(source) == expected


@pytest.mark.parametrize(
    ("forward", "cause"),
    [
        ("return torch.dropout(x, 0.5, True)", "it draws random numbers: called again with another seed, "),
        ("self.n = getattr(self, 'n', 0) + 1; return x * self.n", "it counts its calls, keeps other state, or "),
    ],
)
def test_the_cause_of_outputs_that_differ_is_named(forward: str, cause: str) -> None:
    assert found(task(forward))["flags"]["nondeterministic"].startswith(cause)


def test_the_audit_reports_the_dtypes_of_the_tensors() -> None:
    source = task("return (x @ self.w.float()).argmax(1), x.half()", init=ROUNDED_LAYER)
    assert found(source)["dtypes"] == {
        "inputs": ["float32"],
        "parameters": ["float8_e4m3fn"],
        "outputs": ["int64", "float16"],
    }
    assert found(task("return x * 2"), precision="bf16")["dtypes"]["inputs"] == ["bfloat16"]


def test_every_flag_has_its_measurement() -> None:
    assert "differ by 0 at most" in found(task("return x - x"))["flags"]["input_blind"]
    assert found(task("return torch.log(x)"))["flags"]["non_finite"].startswith("0.")
    assert "(16,) and (16, 1)" in str(
        found(task("return x - y", "torch.randn(16), torch.randn(16, 1)", names="x, y"))["flags"]
    )
    relu = task("return torch.relu(x)", "torch.rand(8, 16)")
    assert found(relu)["flags"]["identity_pass"] == "input tensor 0 passes as the output, 0 off at most"
    swapped = task("return F.relu(y), x + 1e-5", PAIR, names="x, y")
    assert found(swapped)["flags"]["identity_pass"] == "input tensors 1, 0 pass as the outputs, 1e-05 off at most"
    few = task("return x.float().cos() * torch.arange(1.0, 9.0)", "torch.randint(0, 8, (1,))")
    assert found(few)["flags"]["few_inputs"] == "8 different inputs in 64 calls"
    assert "broken" in found(task("raise RuntimeError('broken')"))["flags"]["reference_fails"]


def test_only_small_work_is_tiny() -> None:
    assert "tiny" in found(task("return x @ x.T"))["flags"]
    # 2 x 1024^3 operations take 43 us at 50 TFLOP/s.
    assert "tiny" not in found(task("return x @ x", "torch.randn(1024, 1024)"))["flags"]


def test_the_tolerance_in_force_decides() -> None:
    source = task("return torch.softmax(x, 1)", "torch.randn(4, 32768)")
    assert flags(source) == set()
    # Softmax over so many elements is at most 3e-3 here, which the absolute tolerance of half precision covers.
    assert "zeros_pass" in flags(source, precision="bf16", profile="kernelbench")


@pytest.mark.parametrize(
    ("source", "mended_by"),
    [
        (task("return torch.relu(x)", "torch.rand(8, 16)"), "signed"),
        (task("return F.relu(x), F.relu(y)", PAIR, names="x, y"), "signed"),
        (task("return torch.clamp(x, -4, 4)", "torch.rand(8, 16) * 3 - 1.5"), "row_scaled"),
        (task("return x - x"), None),
        # The only overlays that make a shortcut fail make the reference fail too.
        (task("return torch.where(x < 0, x.sqrt(), x)", "torch.rand(8, 16)"), None),
    ],
)
def test_an_overlay_fixes_a_task_if_the_shortcut_fails_and_the_reference_stays_finite(
    source: str, mended_by: str | None
) -> None:
    assert found(source)["mended_by"] == mended_by


@pytest.mark.parametrize("kind", OVERLAYS)
def test_overlays_are_drawn_from_the_seed_and_keep_integers_shapes_and_structures(kind: str) -> None:
    given = [torch.rand(4, 3), torch.arange(5), (torch.ones(()), {"half": torch.rand(2).half()}), 7]
    domains = [Domain("uniform", 0, 1), Domain("integers", 0, 4), AS_DRAWN, Domain("numbers")]
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(overlaid(given, kind, domains))
    first, second = results
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[0], given[0])
    assert first[0].shape == (4, 3)
    assert torch.equal(first[1], given[1])
    assert torch.equal(first[2][0], given[2][0])
    assert first[2][1]["half"].dtype is torch.float16
    assert first[3] == 7


def test_row_scaling_keeps_the_signs_and_the_ratios_within_a_row() -> None:
    given = torch.rand(6, 5) + 0.1
    scale = overlaid([given], "row_scaled", [Domain("numbers")])[0] / given
    assert torch.allclose(scale, scale[:, :1].expand(6, 5))
    assert bool(((scale >= 1 / 8.1) & (scale <= 8.1)).all())


def test_a_task_that_hangs_or_ends_its_process_is_unaudited_and_never_clean() -> None:
    hanging = Task("hangs", "import time\n" + task("time.sleep(600)"))
    dying = Task("dies", "import os\n" + task("os._exit(3)"))
    greedy = Task("takes memory", task("return torch.zeros(1 << 46)"))
    settings = EvaluationSettings()

    async def audits() -> list[Any]:
        async with contextlib.aclosing(Auditor()) as auditor:
            return [
                await auditor.audit(hanging, settings, 2.0),
                await auditor.audit(dying, settings, 60.0),
                await auditor.audit(greedy, settings, 60.0),
            ]

    first, second, third = asyncio.run(audits())
    assert first.unaudited == "not finished within 2 s"
    assert "ended with status 3" in second.unaudited
    assert third.unaudited == "not enough memory here"
    assert not any((first.flags, second.flags, third.flags))


def test_output_of_a_reference_does_not_disturb_the_reply() -> None:
    async def audits() -> Any:
        async with contextlib.aclosing(Auditor()) as auditor:
            loud = Task("loud", "print('{}')\n" + task("return x.sin()"))
            return await auditor.audit(loud, EvaluationSettings(), 60.0)

    audited = asyncio.run(audits())
    assert set(audited.flags) == {"tiny"}
    assert audited.provenance["device"]
    assert set(audited.flags) <= set(FLAGS)


SPY = """
import os, socket
seen = [name for name in ("SERVICE_API_KEY",) if name in os.environ]
seen += [path for path in ({path!r},) if os.path.exists(path)]
try:
    socket.create_connection(("127.0.0.1", 1), 1)
except ConnectionRefusedError:
    seen.append("the network")
except OSError:
    pass
if seen:
    raise RuntimeError(f"reached {{seen}}")
"""


def test_a_confined_audit_reaches_no_variable_file_or_network_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "secret")
    (tmp_path / "key").write_text("secret")
    source = SPY.format(path=str(tmp_path / "key")) + task("return x.sin()")

    async def audits() -> list[Any]:
        async with contextlib.aclosing(Auditor()) as auditor:
            domains = ("", "others")
            return [await auditor.audit(Task("spy", source, domain=one), EvaluationSettings(), 60.0) for one in domains]

    open_, confined = asyncio.run(audits())
    assert "SERVICE_API_KEY" in open_.flags["reference_fails"]
    assert "the network" in open_.flags["reference_fails"]
    assert (confined.unaudited, set(confined.flags)) == (None, {"tiny"})


def test_a_task_cannot_write_a_reply_of_the_audit_process() -> None:
    forging = """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'{"flags": {}}\\n')
    except OSError:
        pass
"""

    async def audits() -> list[Any]:
        async with contextlib.aclosing(Auditor()) as auditor:
            sources = (forging + task("return x.sin()"), task("return x - x"))
            tasks = [Task(f"task {number}", source, domain="others") for number, source in enumerate(sources)]
            return [await auditor.audit(one, EvaluationSettings(), 60.0) for one in tasks]

    _, after = asyncio.run(audits())
    assert (after.task_id, "zeros_pass" in after.flags) == ("task 1", True)


def test_the_starter_tasks_have_no_shortcuts_or_defects() -> None:
    source = pytest.importorskip("kernelrl_plugin_starter.source")
    options = pytest.importorskip("kernelrl_plugin_starter.config").StarterOptions()
    tasks = source.StarterTasks(options)
    found_tasks = [task for split in ("train", "held_out") for task in tasks.tasks(split)]
    assert found_tasks
    # They are small on purpose, to run without a GPU.
    assert {task.id: flags(task.reference) for task in found_tasks if flags(task.reference)} == {}
