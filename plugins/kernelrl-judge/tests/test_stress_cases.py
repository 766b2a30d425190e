"""The probe `stress`: cases that a task names and its draws hardly ever show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference, wrong_parts  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402
from kernelrl_judge.probes.stress_shares import with_zeros  # noqa: E402
from kernelrl_judge.probes.stress_twins import with_twins  # noqa: E402
from kernelrl_judge.task.stress_ranges import at_ends, declared  # noqa: E402

IGNORING = "return torch.nn.functional.cross_entropy(x, ids, ignore_index=-100, reduction='none')"
LABELS = "torch.randn(32, 64), torch.randint(0, 64, (32,))"
COUNTED = (
    "self.register_buffer('mean', torch.zeros(64)); self.register_buffer('step', torch.zeros((), dtype=torch.int64))"
)
COUNTING = "self.step.add_(1); self.mean.lerp_(x.mean(0), 0.1); return x - self.mean / (1.0 - 0.9 ** self.step)"
PRUNED = "self.register_buffer('mask', torch.ones(64, 64, dtype=torch.bool))"
IDS, FLOATS = "torch.randint(0, 50, (96, 24))", "torch.randn(64, 512), torch.randn(64, 512)"


def losses(x: Any, ids: Any) -> Any:
    return x.logsumexp(1) - x.gather(1, ids.clamp(min=0)[:, None])[:, 0]


def moments(x: Any, mean: Any) -> Any:
    return 0.9 * mean + 0.1 * x.mean(0)


def first_equal(keys: Any) -> Any:
    return torch.tensor([keys.index(key) for key in keys])


@pytest.mark.parametrize(
    ("forward", "inputs", "names", "init", "honest", "lazy", "part"),
    [
        (
            "return torch.where(ids == 0, 0.0, 1.0)[order] * x",
            "torch.randint(0, 1000000, (32,)), torch.randperm(32), torch.randn(32)",
            "ids, order, x",
            "pass",
            lambda ids, order, x: (ids[order] != 0) * x,
            lambda ids, order, x: x,
            "ranges",
        ),
        (
            IGNORING,
            LABELS,
            "x, ids",
            "pass",
            lambda x, ids: torch.where(ids == -100, 0.0, losses(x, ids)),
            losses,
            "ranges",
        ),
        (
            "return torch.sort(ids, 1).values",
            "torch.randint(0, 2**40, (32, 64))",
            "ids",
            "pass",
            lambda ids: ids.flip(1).msort() if ids.dim() < 2 else ids.T.msort().T,
            lambda ids: torch.zeros_like(ids).scatter(1, (ids[:, None] < ids[:, :, None]).sum(2), ids),
            "ranges",
        ),
        (
            "return -torch.xlogy(x, x).sum(1)",
            "torch.randn(32, 64).softmax(1)",
            "x",
            "pass",
            lambda x: -(x * x.clamp_min(1e-38).log()).sum(1),
            lambda x: -(x * x.log()).sum(1),
            "shares",
        ),
        (
            "return (a == b).all(1)",
            FLOATS,
            "a, b",
            "pass",
            lambda a, b: (a - b).abs().sum(1) == 0,
            lambda a, b: (a[:, :32] == b[:, :32]).all(1),
            "twins",
        ),
        (
            "return (ids[:, None] == ids[None]).all(2).int().argmax(1)",
            IDS,
            "ids",
            "pass",
            lambda ids: first_equal([tuple(row) for row in ids.tolist()]),
            lambda ids: first_equal([tuple(sorted(row)) for row in ids.tolist()]),
            "twins",
        ),
        (
            "return torch.hypot(a, b)",
            "torch.randn(16, 32), torch.randn(16, 32)",
            "a, b",
            "pass",
            lambda a, b: torch.linalg.vector_norm(torch.stack([a.double(), b.double()]), dim=0).float(),
            lambda a, b: (a * a + b * b).sqrt(),
            "spiked",
        ),
        (
            "return torch.round(a) + 256.0 * b",
            "4.0 * torch.randn(20, 64), torch.randn(20, 64)",
            "a, b",
            "pass",
            lambda a, b: 256.0 * b + a.round(),
            lambda a, b: 256.0 * b + torch.floor(a + 0.5),
            "coincidences",
        ),
        (
            COUNTING,
            "torch.randn(20, 64)",
            "x",
            COUNTED,
            lambda x, mean, step: x - moments(x, mean) / (1.0 - 0.9 ** (step + 1)),
            lambda x, mean, step: x - moments(x, mean) / (1.0 - 0.9),
            "mixed",
        ),
        (
            "return x @ (x[:1].T * self.mask)",
            "torch.randn(32, 64)",
            "x",
            PRUNED,
            lambda x, mask: x @ torch.where(mask, x[:1].T, 0.0),
            lambda x, mask: x @ x[:1].T.expand(64, 64),
            "mixed",
        ),
    ],
    ids=["id", "label", "sorted", "shares", "one_element", "exchanged", "hypot", "halves", "steps", "mask"],
)
def test_a_case_that_draws_hardly_ever_show_is_tried(
    forward: str, inputs: str, names: str, init: str, honest: Callable[..., Any], lazy: Callable[..., Any], part: str
) -> None:
    task = reference(forward, inputs, init, names)
    assert wrong_parts(task, honest) == set()
    assert part in wrong_parts(task, lazy)


@pytest.mark.parametrize(
    ("forward", "least"),
    [
        (IGNORING, -100),
        ("return torch.nn.functional.cross_entropy(x, ids, reduction='none')", 0),
        ("return x * torch.where(ids == -1, 0, ids)[:, None]", -1),
        ("return x.gather(1, ids[:, None]) * (ids != -1)[:, None]", 0),
    ],
    ids=["told", "by_default", "compared", "refused"],
)
def test_numbers_out_of_range_stand_among_integers_where_the_reference_names_and_bears_them(
    forward: str, least: int
) -> None:
    calls = stress.prepared(reference(forward, LABELS, names="x, ids"), SETTINGS, spread=True)[1]
    assert min(int(call.trial.inputs[1].min()) for call in calls) == least


def test_a_number_that_a_type_does_not_have_is_left_out() -> None:
    ids = torch.randint(9, (32,), dtype=torch.uint8)
    assert {*at_ends(ids, (0, 9), [-100, 200], leaves=True).tolist()} - {*range(9)} == {200}


@pytest.mark.parametrize(
    ("forward", "inputs", "honest"),
    [
        (
            "n = torch.nn.functional.normalize(x); return torch.where(ids[:, None] == ids, n @ n.T, 0.0)",
            "torch.randn(32, 64), torch.randint(0, 5, (32,))",
            lambda x, ids: (
                (ids[:, None] == ids) * ((x @ x.T) / (x.norm(dim=1)[:, None] * x.norm(dim=1)).clamp_min(1e-24))
            ),
        ),
        (
            "return (x.argmax(1) == ids).float().mean()",
            LABELS,
            lambda x, ids: (63 - x.flip(1).argmax(1) == ids).sum() / 32,
        ),
        (
            "d = (x[:, None] - x).abs().sum(2); return (ids[d.topk(3, largest=False).indices] == ids[:, None]).sum(1)",
            "torch.randn(32, 64), torch.randint(0, 5, (32,))",
            lambda x, ids: (
                ids[31 - (x[:, None] - x).abs().sum(2).flip(1).topk(3, largest=False).indices] == ids[:, None]
            ).sum(1),
        ),
    ],
    ids=["contrastive", "accuracy", "nearest"],
)
def test_honest_kernels_pass_where_a_task_names_a_case(forward: str, inputs: str, honest: Callable[..., Any]) -> None:
    for _ in range(3):
        assert wrong_parts(reference(forward, inputs, names="x, ids"), honest) == set()


def test_which_shares_of_a_shape_are_zero_is_drawn_once() -> None:
    masks: dict[Any, Any] = {}
    shares = torch.rand(8, 16).softmax(1)
    with_zeros(shares, 1, masks)
    before = torch.get_rng_state()
    with_zeros(shares, 1, masks)
    assert torch.equal(torch.get_rng_state(), before)


def test_zeros_among_shares_are_left_out_where_the_reference_is_not_finite_with_them() -> None:
    inputs = "torch.randn(16, 64).softmax(1), torch.randn(16, 64).softmax(1)"
    task = reference("return torch.nn.functional.kl_div(x.log(), y, reduction='batchmean')", inputs, names="x, y")
    _, calls, reason = stress.prepared(task, SETTINGS, spread=True)
    assert (calls, reason) == ([], "shares: the reference is not finite on such inputs")


@pytest.mark.parametrize(
    ("init", "forward", "changed"),
    [
        ("torch.zeros(64, dtype=torch.int64)", "x + self.held", False),
        ("torch.zeros(64, dtype=torch.int64)", "x + self.held.add_(1)", True),
        ("torch.ones(64, dtype=torch.bool)", "x[:, self.held]", False),
        ("torch.ones(64, dtype=torch.bool)", "x.masked_fill(self.held, 0.0)", True),
        ("torch.arange(64) < 32", "x.masked_fill(self.held, 0.0)", False),
        ("torch.zeros(64, dtype=torch.bool)", "x.masked_fill(self.held[:, None], -torch.inf).softmax(1)", False),
    ],
    ids=["places", "counts", "shapes", "mask", "table", "nothing_left"],
)
def test_masks_and_counts_are_changed_where_a_reference_bears_it(init: str, forward: str, changed: bool) -> None:
    task = reference(f"return {forward}", "torch.randn(64, 64)", f"self.register_buffer('held', {init})")
    state = stress.prepared(task, SETTINGS, spread=True)[0].state
    assert torch.equal(state["held"], task.state["held"]) != changed


def test_twins_are_copies_or_differ_in_one_element_or_two() -> None:
    torch.manual_seed(0)
    before, other = torch.randint(10**6, (16, 24)), torch.randint(10**6, (16, 24))
    found = with_twins(before, {(before.dtype, before.shape[1:], 2): other}, alike=True)
    differ = (found != other).sum(1).tolist()
    assert (differ[::4], differ[1::4], differ[3::4]) == ([0] * 4, [1] * 4, [2] * 4)
    assert torch.equal(found[3::4].sort(1).values, other[3::4].sort(1).values)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randint(5, 9, (4, 8)),
        lambda: torch.randint(5, high=9, size=(4, 8)),
        lambda: torch.randint(low=5, high=9, size=(4, 8)),
    ],
)
def test_a_range_is_read_however_its_ends_are_given(draw: Callable[[], Any]) -> None:
    assert declared(lambda: [draw()]) == [(5, 9)]


def test_a_range_of_one_number_begins_at_zero() -> None:
    assert declared(lambda: [torch.randint(9, (4, 8)), torch.randint(high=9, size=(4, 8))]) == [(0, 9)] * 2
