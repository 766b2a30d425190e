"""The probe `stress`: nothing in a task keeps it from deciding what can be decided, and honest kernels pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference, wrong_parts  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402
from kernelrl_judge.probes.stress_bounds import bounds  # noqa: E402
from kernelrl_judge.task.stress_ranges import declared  # noqa: E402

CLAMP = "return torch.clamp(x, -7.0, 7.0) * 2.0"


def clamped(x: Any) -> Any:
    return x.clamp(-7.0, 7.0) * 2.0


@pytest.mark.parametrize(
    ("forward", "init", "honest", "lazy"),
    [
        (
            f"{CLAMP}, torch.round(x * 100000.0).to(torch.int32)",
            "pass",
            lambda x: (clamped(x), torch.round(x / 1e-5).to(torch.int32)),
            lambda x: (x * 2.0, torch.round(x * 100000.0).to(torch.int32)),
        ),
        (
            "return torch.clamp(x, -7.0, 7.0) @ torch.diag(torch.full((64,), 2.0, dtype=torch.float32))",
            "pass",
            clamped,
            lambda x: x * 2.0,
        ),
        (CLAMP, "self.functional = torch.nn.functional", clamped, lambda x: x * 2.0),
        (
            "return torch.cat([x.pow(4).sum(1, keepdim=True), torch.clamp(x, -7.0, 7.0)], 1)",
            "pass",
            lambda x: torch.cat([(x * x).square().sum(1, keepdim=True), x.clamp(-7.0, 7.0)], 1),
            lambda x: torch.cat([x.pow(4).sum(1, keepdim=True), x], 1),
        ),
        (
            "return torch.nn.functional.normalize(x, dim=1)",
            "pass",
            lambda x: x / x.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12),
            lambda x: x / x.square().sum(1, keepdim=True).sqrt(),
        ),
        (
            "return x * 2.0, float(torch.logsumexp(x.flatten(), 0))",
            "pass",
            lambda x: (x + x, float((x - x.max()).exp().sum().log() + x.max())),
            lambda x: (x + x, float(x.exp().sum().log())),
        ),
        (
            "return torch.exp(8.0 * x) + torch.clamp(x, -7.0, 7.0)",
            "pass",
            lambda x: torch.exp2(x * 11.541560327111707) + x.clamp(-7.0, 7.0),
            lambda x: torch.exp(8.0 * x) + x,
        ),
    ],
    ids=["other_output_rounds", "fails_in_double", "cannot_be_copied", "noisy_column", "zeros", "plain", "overflow"],
)
def test_what_one_part_of_a_task_does_excuses_no_other(
    forward: str, init: str, honest: Callable[..., Any], lazy: Callable[..., Any]
) -> None:
    task = reference(forward, "torch.randn(20, 64)", init)
    assert wrong_parts(task, honest) == set()
    assert wrong_parts(task, lazy)


def test_small_numbers_beside_large_ones_count() -> None:
    task = reference("return torch.cat([x * 3.0, torch.softmax(torch.tanh(x), 1)], 1)", "torch.randn(4, 8192)")
    assert wrong_parts(task, lambda x: torch.cat([x * 3.0, torch.tanh(x).exp().softmax(1)], 1))
    assert wrong_parts(task, lambda x: torch.cat([x * 3.0, x * 0.0], 1))

    def honest(x: Any) -> Any:
        weights = x.tanh().exp()
        return torch.cat([x * 3.0, weights / weights.cumsum(1)[:, -1:]], 1)

    assert wrong_parts(task, honest) == set()


def test_state_that_fits_in_memory_once_is_no_excuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stress, "_MOST_BYTES_ON_CPU", 1 << 16)
    init = "self.table = torch.nn.Parameter(torch.rand(1000, 64))"
    task = reference("return torch.clamp(self.table[7] + x, -6.5, 6.5)", "torch.randn(8, 64)", init)
    assert wrong_parts(task, lambda x, table: (x + table[7]).clamp(-6.5, 6.5)) == set()
    assert wrong_parts(task, lambda x, table: x + table[7])


def test_the_last_of_many_terms_counts() -> None:
    task = reference("return x.abs().mean(1)", "torch.randn(8, 65537)")
    assert wrong_parts(task, lambda x: x.abs().cumsum(1)[:, -1] / 65537) == set()
    assert "edges" in wrong_parts(task, lambda x: x[:, :-1].abs().mean(1))


def test_running_statistics_are_changed_and_other_constants_are_not() -> None:
    init = (
        "self.register_buffer('mean', torch.zeros(64)); self.register_buffer('var', torch.ones(64));"
        "self.register_buffer('fraction', torch.full((64,), 0.5));"
        "self.register_buffer('mask', torch.ones(64, 64).tril())"
    )
    task = reference("return (x - self.mean) / (self.var + 1e-5).sqrt() * self.fraction", init=init)
    state = stress.prepared(task, SETTINGS, spread=True)[0].state
    assert {name for name in state if not torch.equal(state[name], task.state[name])} == {"mean", "var"}
    assert bool((state["var"] > 0).all())
    assert wrong_parts(task, lambda x, mean, var, **_: (x - mean) * (var + 1e-5).rsqrt() * 0.5) == set()
    assert wrong_parts(task, lambda x, **_: x * 0.499998)


def test_whole_numbers_are_repeated_so_that_errors_of_narrow_types_do_not_average_out() -> None:
    task = reference("return torch.log(x).mean(1)", "torch.randint(1, 256, (8, 4096)).float()")
    assert wrong_parts(task, lambda x: x.log().cumsum(1)[:, -1] / 4096) == set()
    assert "aligned" in wrong_parts(task, lambda x: x.log().half().float().mean(1))


@pytest.mark.parametrize(
    ("forward", "inputs", "honest", "lazy"),
    [
        (
            "return torch.where(ids == 0, 0.0, 1.0) * x",
            "torch.randint(0, 1000000, (32,)), torch.randn(32)",
            lambda ids, x: (ids != 0).float() * x,
            lambda ids, x: x,
        ),
        (
            "return ids.sum(1) + x",
            "torch.randint(2**24, (20, 200)), torch.randn(20)",
            lambda ids, x: ids.cumsum(1)[:, -1] + x,
            lambda ids, x: ids.sum(1).to(torch.int32) + x,
        ),
        (
            "return torch.zeros(1000000).index_add(0, ids, x)",
            "torch.randint(0, high=1000000, size=(64,)), torch.randn(64)",
            lambda ids, x: torch.zeros(1000000).index_add(0, ids.flip(0), x.flip(0)),
            lambda ids, x: torch.zeros(1000000).index_copy(0, ids, x),
        ),
    ],
    ids=["first", "last", "duplicates"],
)
def test_the_ends_of_a_range_and_duplicates_may_be_drawn(
    forward: str, inputs: str, honest: Callable[..., Any], lazy: Callable[..., Any]
) -> None:
    task = reference(forward, inputs, names="ids, x")
    assert wrong_parts(task, honest) == set()
    assert wrong_parts(task, lazy) == {"ranges"}


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda: [torch.randint(9, (8,)), torch.randn(4)], [(0, 9), None]),
        (lambda: [torch.randint(-3, 9, (8,), dtype=torch.int32)], [(-3, 9)]),
        (lambda: [torch.randint(0, 1000000, (32, 16)).unsqueeze(-1)], [(0, 1000000)]),
        (lambda: [torch.randint(9, (8, 4)).clone().to(torch.int32).T], [(0, 9)]),
        (lambda: (lambda ids: [ids, ids.unsqueeze(-1)])(torch.randint(9, (8,))), None),
        (lambda: (lambda x: [x, x > 0.5])(torch.rand(8, 4)), None),
        (lambda: [torch.rand(8, 4) > 0.5, torch.arange(4)], [(0, 2), None]),
        (lambda: [torch.randint(2, (8,))], [(0, 2)]),
        (lambda: [torch.randperm(8)], None),
        (lambda: [torch.randint(9, (8,)).sort()[0]], None),
        (lambda: (lambda start: [start, start + torch.randint(5, (8,))])(torch.randint(9, (8,))), None),
    ],
)
def test_only_integers_that_nothing_has_touched_have_a_range(draw: Callable[[], Any], expected: Any) -> None:
    assert declared(draw) == expected


def test_integers_stay_where_the_answer_depends_on_which_of_two_equals_comes_first() -> None:
    inputs = "torch.randint(0, 100, (8, 64)), torch.randn(8, 64)"
    for forward in ("ids.argsort(1), x", "x.scatter(1, ids % 64, x)", "ids.max(1), x"):
        task = reference(f"return {forward}", inputs, names="ids, x")
        assert "ranges" not in {call.part for call in stress.prepared(task, SETTINGS, spread=True)[1]}


@pytest.mark.parametrize(
    ("forward", "inputs", "honest"),
    [
        (
            "return torch.nn.functional.layer_norm(x, (64,))",
            "torch.randn(20, 64)",
            lambda x: (
                (x - x.mean(1, keepdim=True))
                * ((x * x).mean(1, keepdim=True) - x.mean(1, keepdim=True).square() + 1e-5).rsqrt()
            ),
        ),
        (
            "return torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])",
            "torch.randn(32, 2048)",
            lambda x: x.sum(1, keepdim=True) - x.cumsum(1) + x,
        ),
        (
            "return torch.softmax(x, 1)",
            "torch.randn(32, 1024)",
            lambda x: (
                torch.exp2(x * 1.4426950408889634 - x.amax(1, keepdim=True) * 1.4426950408889634)
                / torch.exp2(x * 1.4426950408889634 - x.amax(1, keepdim=True) * 1.4426950408889634).sum(1, keepdim=True)
            ),
        ),
        (
            "return torch.nn.functional.conv1d(x[:, None], x[:1, None, :31], padding=15)[:, 0]",
            "torch.randn(16, 512)",
            lambda x: torch.fft.irfft(torch.fft.rfft(x, 1024) * torch.fft.rfft(x[0, :31].flip(0), 1024), 1024)[
                :, 15:527
            ],
        ),
        (
            "return torch.nn.functional.gelu(x, approximate='tanh')",
            "torch.randn(64, 64)",
            lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)),
        ),
        (
            "return torch.argmax(x, 1)",
            "torch.randn(32, 64)",
            lambda x: 63 - x.flip(1).argmax(1),
        ),
        (
            "return torch.cumprod(x, 1)",
            "torch.rand(64, 64)",
            lambda x: torch.stack(list(accumulate(x.T, torch.mul))).T,
        ),
        (
            "return (x / (x.abs().amax(1, keepdim=True) / 127)).round().to(torch.int8)",
            "torch.randn(64, 256)",
            lambda x: (x * (127 / x.abs().amax(1, keepdim=True))).round().to(torch.int8),
        ),
    ],
    ids=[
        "one_pass_variance",
        "total_less_prefix",
        "powers_of_two",
        "fourier",
        "gelu",
        "argmax",
        "scan_in_range",
        "rounding",
    ],
)
def test_honest_ways_to_compute_the_same_pass(forward: str, inputs: str, honest: Callable[..., Any]) -> None:
    for _ in range(3):
        assert wrong_parts(reference(forward, inputs), honest) == set()


def test_a_slice_has_the_scale_and_the_noise_of_its_own() -> None:
    # Two halves of 32 x 32: one of 1000s, off by 1, and one of 0.001s, exact. Rounding in the row may cost 64 times
    # 2**-24 * 1000 = 0.0038.
    exact = torch.cat([torch.full((32, 32), 1000.0), torch.full((32, 32), 0.001)], 1).double()
    own = torch.cat([torch.full((32, 32), 1001.0), torch.full((32, 32), 0.001)], 1)
    found = bounds(exact, own)
    assert float(found.noise[0, 0]) == 64.0
    assert float(found.noise[0, 63]) == pytest.approx(64 * 2.0**-24 * 1000, rel=1e-4)
    assert float(found.scale[0, 63]) == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("forward", "apart"),
    [
        ("return x.softmax(1)", True),
        ("return x.softmax(0)", False),
        ("return x.cumsum(0)", False),
        ("return x.flip(0).cumsum(0).flip(0)", False),
        ("return x[:, :20] @ x", False),
        ("return x.sum()", False),
    ],
)
def test_rows_that_depend_on_each_other_are_told_from_others(forward: str, apart: bool) -> None:
    task = reference(forward, "torch.randn(20, 64)")
    stress.prepared(task, SETTINGS, spread=True)
    assert task.facts["rows_apart"] == apart


def test_rows_that_are_not_finite_decide_nothing_and_the_others_do() -> None:
    exact = torch.tensor([[1.0, 2.0], [torch.inf, 1.0], [3.0, torch.nan], [4.0, 4.0]]).double()
    own = exact.float().nan_to_num(nan=1.0, posinf=torch.inf)
    found = bounds(exact, own, rows_apart=True)
    assert found.noise.isinf().tolist() == [[False] * 2, [True] * 2, [True] * 2, [False] * 2]
    assert found.decided == 0.5
    assert bounds(exact, own).decided == 0.0
