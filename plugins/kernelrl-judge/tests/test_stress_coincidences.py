"""The probe `stress`: what no draw holds and a task may single out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference, wrong_parts  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402

DISTANCES = "return (a[:, None] - b[None]).square().sum(-1).sqrt()"
NORM = "return x / (x.norm() + 1e-3)"
REJECTED = "return torch.where(x.abs() > 1e5, torch.zeros_like(x), x) * 2.0"
MISSING = "return torch.tanh(x.masked_fill(x == -1.0, 0.0))"
POINTS = "torch.randn(24, 64), torch.randn(32, 64)"


def squares(a: Any, b: Any) -> Any:
    return a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T


@pytest.mark.parametrize(
    ("forward", "inputs", "names", "honest", "lazy", "part"),
    [
        (NORM, "torch.randn(16, 64)", "x", lambda x: x * (1 / (x.norm() + 1e-3)), lambda x: x / x.norm(), "zeros"),
        (
            NORM,
            "torch.randn(16, 64)",
            "x",
            lambda x: x / (x.square().sum().sqrt() + 1e-3),
            lambda x: x / x.norm().clamp(min=1e-3),
            "faint",
        ),
        (
            REJECTED,
            "torch.randn(16, 64)",
            "x",
            lambda x: (x.abs() <= 1e5) * x * 2,
            lambda x: x * 2,
            "spiked",
        ),
        (
            MISSING,
            "torch.randn(16, 64)",
            "x",
            lambda x: torch.where(x == -1.0, 0.0, 2 * torch.sigmoid(2 * x) - 1),
            lambda x: torch.tanh(x),
            "coincidences",
        ),
        (
            "return torch.round(x * 4.0) * 0.25",
            "torch.randn(16, 64)",
            "x",
            lambda x: (4.0 * x).round() / 4.0,
            lambda x: torch.floor(4.0 * x + 0.5) / 4.0,
            "coincidences",
        ),
        (
            DISTANCES,
            POINTS,
            "a, b",
            lambda a, b: squares(a, b).clamp_min(0.0).sqrt(),
            lambda a, b: squares(a, b).sqrt(),
            "twins",
        ),
        (
            "return (x * mask).sum(1) / mask.sum(1).clamp(min=1)",
            "torch.randn(16, 32), torch.rand(16, 32) < torch.rand(16, 32)",
            "x, mask",
            lambda x, mask: torch.where(mask, x, 0.0).sum(1) / mask.sum(1).clamp(min=1),
            lambda x, mask: torch.where(mask, x, 0.0).sum(1) / mask.sum(1),
            "ranges",
        ),
        (
            "return sum((x >= n).float() for n in (1, 2, 3, 4, 5, 6, 7, 8.0)) - 9 * (x == -9999.0).float()",
            "torch.rand(32, 64) * 9",
            "x",
            lambda x: torch.where(x == -9999.0, -9.0, x.floor().clamp(0, 8)),
            lambda x: x.floor().clamp(0, 8),
            "coincidences",
        ),
        (
            "return x * (~torch.isin(ids, torch.tensor([101, 102])))",
            "torch.randn(16, 32), torch.randint(0, 250002, (16, 32))",
            "x, ids",
            lambda x, ids: torch.where((ids == 101) | (ids == 102), 0.0, x),
            lambda x, ids: x,
            "ranges",
        ),
        (
            "return x.masked_fill(ids == 0, -1e4).max(1).values",
            "torch.randn(16, 32), torch.randint(0, 250002, (16, 32))",
            "x, ids",
            lambda x, ids: torch.where(ids == 0, -1e4, x).amax(1),
            lambda x, ids: x.amax(1),
            "ranges",
        ),
        (
            "return torch.xlogy(t, p) + torch.xlogy(1 - t, 1 - p)",
            "torch.rand(64, 32), torch.rand(64, 32)",
            "p, t",
            lambda p, t: t * p.clamp_min(1e-37).log() + (1 - t) * (1 - p).clamp_min(1e-37).log(),
            lambda p, t: t * p.clamp_min(1e-37).log() + (1 - t) * (1 - p).log(),
            "ends",
        ),
        (
            "return (1 - (a @ b.T).square()).clamp(min=0).sqrt()",
            "*torch.nn.functional.normalize(torch.randn(2, 64, 32), dim=2)",
            "a, b",
            lambda a, b: (1 - (a @ b.T).square()).relu().sqrt(),
            lambda a, b: (1 - (a @ b.T).square()).sqrt(),
            "twins",
        ),
        (
            "return x[:, 1:] / torch.where(t.diff() > 0, t.diff(), torch.ones_like(t.diff()))",
            "torch.randn(32, 64), torch.rand(32, 64).sort().values",
            "x, t",
            lambda x, t: torch.where(t.diff() > 0, x[:, 1:] / t.diff(), x[:, 1:]),
            lambda x, t: x[:, 1:] / t.diff(),
            "twins",
        ),
    ],
    ids=[
        "zeros",
        "faint",
        "rejected",
        "missing",
        "halves",
        "equal_rows",
        "two_draws",
        "ninth",
        "of_a_tensor",
        "maximum",
        "certain",
        "centres",
        "ties",
    ],
)
def test_what_no_draw_holds_is_tried(
    forward: str, inputs: str, names: str, honest: Callable[..., Any], lazy: Callable[..., Any], part: str
) -> None:
    task = reference(forward, inputs, names=names)
    assert wrong_parts(task, honest) == set()
    assert part in wrong_parts(task, lazy)


@pytest.mark.parametrize(
    ("forward", "inputs", "names", "honest"),
    [
        ("return a @ b", "torch.randn(32, 32), torch.randn(32, 32)", "a, b", lambda a, b: (b.T @ a.T).T),
        (
            "return torch.nn.functional.cosine_similarity(a, b, dim=1)",
            "torch.randn(32, 64), torch.randn(32, 64)",
            "a, b",
            lambda a, b: (a * b).sum(1) * (a.square().sum(1) * b.square().sum(1)).clamp_min(1e-16).rsqrt(),
        ),
        (
            "return torch.nn.functional.smooth_l1_loss(a, b)",
            "torch.randn(32, 64), torch.randn(32, 64)",
            "a, b",
            lambda a, b: torch.where((a - b).abs() < 1, 0.5 * (a - b).square(), (a - b).abs() - 0.5).sum() / a.numel(),
        ),
        (
            "return torch.nn.functional.triplet_margin_loss(a, b, c)",
            "torch.randn(32, 64), torch.randn(32, 64), torch.randn(32, 64)",
            "a, b, c",
            lambda a, b, c: (
                ((a - b + 1e-6).square().sum(1).sqrt() - (a - c + 1e-6).square().sum(1).sqrt() + 1)
                .clamp_min(0.0)
                .mean()
            ),
        ),
        (
            "return torch.softmax(q @ k.T / 8, -1) @ v",
            "torch.randn(32, 64), torch.randn(32, 64), torch.randn(32, 64)",
            "q, k, v",
            lambda q, k, v: (
                (torch.exp(q @ k.T * 0.125 - (q @ k.T * 0.125).amax(1, keepdim=True)) @ v)
                / torch.exp(q @ k.T * 0.125 - (q @ k.T * 0.125).amax(1, keepdim=True)).sum(1, keepdim=True)
            ),
        ),
        ("return torch.round(x / 0.1) * 0.1", "torch.randn(32, 64)", "x", lambda x: (x * 10.0).round() * 0.1),
        (
            "return torch.where(x > 0.1, x, 0.01 * x)",
            "torch.randn(32, 64)",
            "x",
            lambda x: x * ((x > 0.1) * 0.99 + 0.01),
        ),
        ("return torch.tanh(x).mean()", "torch.randn(32, 64)", "x", lambda x: (2 * torch.sigmoid(2 * x) - 1).mean()),
    ],
    ids=["product", "cosine", "smooth_l1", "triplet", "attention", "tenths", "threshold", "mean"],
)
def test_honest_kernels_pass(forward: str, inputs: str, names: str, honest: Callable[..., Any]) -> None:
    for _ in range(3):
        assert wrong_parts(reference(forward, inputs, names=names), honest) == set()


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return torch.relu(x)", set()),
        ("return torch.where(x > 0, x, 0.1 * x)", set()),
        ("return torch.nn.functional.layer_norm(x, (64,))", set()),
        ("return torch.nn.functional.batch_norm(x, None, None, training=True)", set()),
        ("return x @ x[:, :32]", set()),
        ("return x.mean()", {"faint", "zeros"}),
        ("return torch.where(x == 2.0, 0.0, x)", {"coincidences"}),
    ],
)
def test_calls_are_made_where_a_task_has_something_to_single_out(forward: str, expected: set[str]) -> None:
    task = reference(forward, "torch.randn(64, 64)")
    made = {call.part for call in stress.prepared(task, SETTINGS, spread=True)[1]}
    assert made - {"mixed", "spiked", "aligned", "edges"} == expected


def test_truth_values_of_two_draws_stay_where_one_of_them_is_an_input() -> None:
    task = reference(
        "return (x * mask * y).sum(1) / mask.sum(1).clamp(min=1)",
        "*(lambda y: (torch.randn(16, 32), y, y < torch.rand(16, 32)))(torch.rand(16, 32))",
        names="x, y, mask",
    )
    assert "ranges" not in {call.part for call in stress.prepared(task, SETTINGS, spread=True)[1]}
