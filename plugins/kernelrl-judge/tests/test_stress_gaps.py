"""The probe `stress`: inputs and buffers of unusual kinds are changed as well, and what is left out is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference, wrong_parts  # noqa: E402

from kernelrl_judge.probes import stress, stress_calls  # noqa: E402
from kernelrl_judge.probes.stress_draws import RareDraws  # noqa: E402
from kernelrl_judge.probes.stress_inputs import changed, nudged  # noqa: E402
from kernelrl_judge.probes.stress_parameters import with_spread  # noqa: E402
from kernelrl_judge.task.input_indices import FIRST_STRESSED  # noqa: E402
from kernelrl_judge.task.input_structure import structure  # noqa: E402

MASKED = "return (x * mask).sum(1) / mask.sum(1).clamp(min=1)"


def parts(task: Any) -> set[str]:
    return {call.part for call in stress.prepared(task, SETTINGS, spread=True)[1]}


@pytest.mark.parametrize(
    ("forward", "inputs", "names", "honest", "lazy", "part"),
    [
        (
            MASKED,
            "torch.randn(16, 32), torch.rand(16, 32) > 0.5",
            "x, mask",
            lambda x, mask: torch.where(mask, x, 0.0).sum(1) / mask.sum(1).clamp(min=1),
            lambda x, mask: torch.where(mask, x, 0.0).sum(1) / mask.sum(1),
            "ranges",
        ),
        (
            MASKED,
            "torch.randn(16, 32), torch.randint(0, 2, (16, 32)).float()",
            "x, mask",
            lambda x, mask: (x * mask).sum(1) / mask.sum(1).clamp(min=1),
            lambda x, mask: (x * mask).sum(1) / mask.sum(1),
            "ranges",
        ),
        (
            "return torch.softmax(x, 1)",
            "torch.randn(16, 64).masked_fill(torch.rand(16, 64) < 0.2, -torch.inf)",
            "x",
            lambda x: torch.exp(x - x.amax(1, keepdim=True)) / torch.exp(x - x.amax(1, keepdim=True)).sum(1)[:, None],
            lambda x: torch.exp(x) / torch.exp(x).sum(1, keepdim=True),
            "spiked",
        ),
        (
            "return z * (torch.clamp(z.abs(), max=8.0) / z.abs().clamp(min=1e-12))",
            "torch.randn(16, 32, dtype=torch.complex64)",
            "z",
            lambda z: torch.polar(z.abs().clamp(max=8.0), z.angle()),
            lambda z: z * 1.0,
            "mixed",
        ),
        (
            "return torch.nn.functional.binary_cross_entropy(p, t, reduction='none')",
            "torch.rand(16, 32), torch.rand(16, 32)",
            "p, t",
            lambda p, t: -(t * p.log().clamp_min(-100.0) + (1 - t) * (1 - p).log().clamp_min(-100.0)),
            lambda p, t: -(t * p.log() + (1 - t) * torch.log1p(-p)),
            "ends",
        ),
        (
            "return torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4) * 2.0",
            "torch.randn(16, 32)",
            "x",
            lambda x: torch.where(x.isnan(), 0.0, torch.where(x.isinf(), x.sign() * 1e4, x)) * 2,
            lambda x: x * 2.0,
            "no_numbers",
        ),
        (
            "return torch.clamp(x, -1e5, 1e5) * 2.0",
            "torch.randn(16, 32)",
            "x",
            lambda x: x.maximum(torch.tensor(-1e5)).minimum(torch.tensor(1e5)) * 2,
            lambda x: x * 2.0,
            "spiked",
        ),
        (
            "return torch.nn.functional.layer_norm(x, (64,))",
            "torch.randn(16, 64)",
            "x",
            lambda x: (x - x.mean(1, keepdim=True)) * (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt(),
            lambda x: (
                (x - x.mean(1, keepdim=True)) * (x.var(1, keepdim=True, correction=0) + 1e-5 * (x[:, :1] == 0)).rsqrt()
            ),
            "edges",
        ),
        (
            "return torch.sinc(x)",
            "torch.randn(4096)",
            "x",
            lambda x: torch.where(x == 0, 1.0, torch.sin(torch.pi * x) / (torch.pi * x)),
            lambda x: torch.sin(torch.pi * x) / (torch.pi * x),
            "edges",
        ),
        (
            "return torch.where(x.amax(1) == 0, 0.0, (x.amax(1) - x.amin(1)) / x.amax(1).clamp(min=1e-9))",
            "torch.rand(2, 3, 64, 64)",
            "x",
            lambda x: (x.amax(1) - x.amin(1)) / x.amax(1).clamp(min=1e-9),
            lambda x: 1 - x.amin(1) / x.amax(1),
            "edges",
        ),
        (
            "return torch.xlogy(x, x) + y",
            "torch.poisson(20 + 40 * torch.rand(64, 64)), torch.randn(64, 64)",
            "x, y",
            lambda x, y: torch.where(x == 0, 0.0, x * x.log()) + y,
            lambda x, y: x * x.log() + y,
            "edges",
        ),
        (
            "return torch.stack([part.sum() / max(1, len(part)) for part in x.tensor_split(offsets)[1:]])",
            "torch.randn(512), torch.cat([torch.zeros(1).long(), torch.randint(1, 9999, (7,)).sort().values // 20])",
            "x, offsets",
            lambda x, offsets: torch.stack([part.mean().nan_to_num(0) for part in x.tensor_split(offsets)[1:]]),
            lambda x, offsets: torch.stack([part.mean() for part in x.tensor_split(offsets)[1:]]),
            "draws",
        ),
        (
            "return (x * mask[:, None]).sum(0) / mask.sum().clamp(min=1)",
            "torch.randn(16, 32), torch.rand(16) > 0.5",
            "x, mask",
            lambda x, mask: torch.where(mask[:, None], x, 0.0).sum(0) / max(1, int(mask.sum())),
            lambda x, mask: torch.where(mask[:, None], x, 0.0).sum(0) / mask.sum(),
            "firsts",
        ),
        (
            "return (x * (torch.arange(16) < n)[:, None]).sum(0) / n.clamp(min=1)",
            "torch.randn(16, 32), torch.randint(0, 17, (1,))",
            "x, n",
            lambda x, n: x[: int(n)].sum(0) / max(1, int(n)),
            lambda x, n: x[: int(n)].sum(0) / n,
            "firsts",
        ),
    ],
    ids=[
        *("masks", "masks_of_fractions", "infinities", "complex", "ends", "no_numbers", "far_bound", "small_variance"),
        *("zero_in_a_line", "black_pixel", "no_count", "empty_segment", "nothing_left", "no_length"),
    ],
)
def test_a_gap_that_a_task_leaves_is_tried(
    forward: str, inputs: str, names: str, honest: Callable[..., Any], lazy: Callable[..., Any], part: str
) -> None:
    task = reference(forward, inputs, names=names)
    assert wrong_parts(task, honest) == set()
    assert part in wrong_parts(task, lazy)


def test_a_rare_draw_repeats_numbers_of_the_range_and_leaves_later_draws_alone() -> None:
    torch.manual_seed(0)
    torch.randint(2, 99, (12,))
    later = torch.rand(3)
    torch.manual_seed(0)
    with RareDraws():
        drawn = torch.randint(2, 99, (12,))
        assert torch.equal(later, torch.rand(3))
    assert drawn.tolist()[:8] == [98] * 4 + [2] * 4
    assert 2 <= int(drawn.min()) <= int(drawn.max()) < 99


def test_truth_values_that_a_task_makes_otherwise_stay() -> None:
    for mask in ("torch.ones(16, 32).tril() > 0", "(torch.rand(16, 32) > 0.5) | (torch.arange(32) == 0)"):
        task = reference(MASKED, f"torch.randn(16, 32), {mask}", names="x, mask")
        assert "ranges" not in parts(task)


def test_rows_of_equal_truth_values_are_left_out_where_the_reference_makes_no_numbers_of_them() -> None:
    forward = "return (x.masked_fill(mask, -torch.inf).softmax(1).sum(0), ids * 2)"
    inputs = "torch.randn(16, 32), torch.rand(16, 32) > 0.5, torch.randint(0, 1000, (8,))"
    _, calls, _ = stress.prepared(reference(forward, inputs, names="x, mask, ids"), SETTINGS, spread=True)
    _, mask, ids = next(call.trial.inputs for call in calls if call.part == "ranges")
    assert not bool(mask.all(1).any())
    assert ids[0] == 999


def test_infinities_stay_in_their_places() -> None:
    inputs = "torch.randn(8, 64).masked_fill(torch.rand(8, 64) < 0.2, -torch.inf)"
    task = reference("return torch.softmax(x, 1)", inputs)
    _, calls, _ = stress.prepared(task, SETTINGS, spread=True)
    assert [call.part for call in calls] == ["mixed", "spiked", "aligned", "edges"]
    for number, call in enumerate(calls):
        before, after = task.inputs(FIRST_STRESSED - number)[0], call.trial.inputs[0]
        assert torch.equal(before == -torch.inf, ~torch.isfinite(after))
        assert not torch.equal(before, after)


@pytest.mark.parametrize(
    ("init", "changed"),
    [
        ("torch.stack([torch.zeros(64), torch.ones(64)])", True),
        ("torch.ones(())", True),
        ("torch.eye(64)[:4]", False),
        ("torch.ones(64, 64).tril()", False),
        ("(torch.arange(64) % 2).float()[:, None]", False),
    ],
)
def test_buffers_that_may_be_statistics_are_changed(init: str, changed: bool) -> None:
    task = reference("return x + self.held.sum()", init=f"self.register_buffer('held', {init})")
    state = stress.prepared(task, SETTINGS, spread=True)[0].state
    assert torch.equal(state["held"], task.state["held"]) != changed


def test_what_is_left_out_is_named() -> None:
    inputs = "torch.rand(16, 32), torch.arange(32), 0.5"
    task = reference("return torch.nn.functional.binary_cross_entropy(p, p) + i * s", inputs, names="p, i, s")
    _, calls, _ = stress.prepared(task, SETTINGS, spread=True)
    assert stress.untried(task, SETTINGS, calls) == "mixed, spiked, edges, input[1] (fixed), input[2] (float)"
    plain = reference("return x * 2.0")
    assert stress.untried(plain, SETTINGS, stress.prepared(plain, SETTINGS, spread=True)[1]) == ""


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torch.randn(8, 16, dtype=torch.complex64), None),
        (lambda: torch.polar(torch.ones(8, 16), torch.rand(8, 16)), "normalised"),
        (lambda: torch.fft.fft(torch.randn(8, 16)), "symmetric"),
        (lambda: (lambda a: a + a.mH)(torch.randn(8, 8, dtype=torch.complex64)), "symmetric"),
        (lambda: torch.randint(2, (8, 16)).float().masked_fill(torch.rand(8, 16) < 0.2, torch.nan), "whole_numbers"),
        (lambda: torch.arange(16), "fixed"),
    ],
)
def test_structures_of_complex_numbers_and_beside_infinities_are_seen(make: Callable[[], Any], expected: Any) -> None:
    torch.manual_seed(0)
    assert structure(make(), make()) == expected


def test_parameters_change_where_a_reference_needs_them_to_stay_positive() -> None:
    init = "self.gamma = torch.nn.Parameter(0.1 * torch.eye(64)); self.beta = torch.nn.Parameter(torch.ones(64))"
    task = reference("return x / torch.sqrt(self.beta + (x * x) @ self.gamma)", "torch.randn(16, 64)", init)
    assert wrong_parts(task, lambda x, gamma, beta: x * ((x * x) @ gamma + beta).rsqrt()) == set()
    _, calls, _ = stress.prepared(task, SETTINGS, spread=True)
    assert min(call.decided for call in calls) > 0.9
    assert wrong_parts(task, lambda x, gamma, beta: x / torch.sqrt(1 + 0.1 * x * x)) == parts(task)


@pytest.mark.parametrize("place", ["changed", "nudged", "in_double", "_left"])
def test_memory_that_is_short_at_the_moment_says_nothing_of_the_task(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    given = ("return torch.relu(x)", "torch.rand(16, 32)")
    task = reference(*given)

    def short(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    owner = {"in_double": type(task), "_left": stress_calls}.get(place, stress.stress_inputs)
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, short)
        fewer = parts(task)
    assert fewer < parts(task) == parts(reference(*given))


@pytest.mark.parametrize("used", [True, False])
def test_none_of_many_parameters_is_left_out(used: bool) -> None:
    init = "self.gains = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(64)) for _ in range(70)])"
    init += "; self.zzz = torch.nn.Parameter(torch.ones(64))"
    task = reference(f"return x * {'self.zzz' if used else '2.0'} + 0.0 * self.gains[3]", init=init)
    found = stress.untested(task, SETTINGS, {"zzz"})
    assert [finding.severity.value for finding in found] == (["suspect"] if used else [])


def test_one_number_that_is_drawn_is_changed_like_others() -> None:
    task = reference("return x * scale", "torch.randn(8, 64), torch.randn(())", names="x, scale")
    assert wrong_parts(task, lambda x, scale: x * scale) == set()


def test_an_input_without_elements_stays() -> None:
    task = reference("return x + y.sum(1)", "torch.randn(64), torch.randn(64, 0)", names="x, y")
    assert wrong_parts(task, lambda x, y: x + 0.0) == set()


@pytest.mark.parametrize("part", ["spiked", "edges", "ends"])
def test_harsh_inputs_without_elements_have_none(part: str) -> None:
    empty = torch.randn(0, 5)
    made = changed([empty], {"structures": [None]}, part, (True, 16.0))
    assert nudged(made, {"structures": [None]}, part)[0].shape == empty.shape


def test_equal_parameters_of_any_strides_stay_equal() -> None:
    made = "self.a, self.b = (torch.nn.Parameter(ones) for ones in (torch.ones(4, 16).t(), torch.ones(64)))"
    task = reference("return x * self.b + self.a.sum(1).sum()", init=made)
    state = with_spread(task, "any_sign", alike=True).state
    assert torch.equal(state["a"].flatten(), state["b"])
    assert state["b"].unique().numel() > 1


def test_what_calls_change_begins_as_calls_leave_it() -> None:
    forward = "self.most.copy_(torch.maximum(self.most, x.max())); self.begun.fill_(True); return x / self.most"
    init = "self.register_buffer('most', torch.tensor(-torch.inf)); self.register_buffer('begun', torch.tensor(False))"
    state = with_spread(reference(forward, init=init), "any_sign").state
    assert state["begun"]
    assert torch.isfinite(state["most"])


@pytest.mark.parametrize(("scale", "bound"), [(2.6, "max=4.6"), (2.6, "min=-3.0")])
def test_a_bound_of_a_parameter_is_passed(scale: float, bound: str) -> None:
    init = f"self.scale = torch.nn.Parameter(torch.tensor({scale}))"
    task = reference(f"return x * self.scale.clamp({bound})", init=init)
    limits = {name: float(value) for name, value in [bound.split("=")]}
    assert wrong_parts(task, lambda x, scale: scale.clamp(**limits) * x) == set()
    assert "mixed" in wrong_parts(task, lambda x, scale: x * scale)


def test_what_is_bounded_of_inputs_says_nothing_of_parameters() -> None:
    init = "self.scale = torch.nn.Parameter(torch.ones(64))"
    task = reference("return (x * self.scale).sum(0).clamp(max=8.0)", init=init)
    with_spread(task, "any_sign")
    assert task.facts.get("beyond", {}) == {}
