"""Operators of torch that compute in a call. Those that allocate or rearrange memory are not named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from small_tasks import reference as reference_of  # noqa: E402

from kernelrl_judge.probes.computing import computing_operators  # noqa: E402
from kernelrl_judge.probes.operators import OperatorsProbe, bytes_moved  # noqa: E402
from kernelrl_judge.probes.probe import CallEffects, DirectCall  # noqa: E402
from kernelrl_judge.runner.operators import listed  # noqa: E402
from kernelrl_judge.task.trial import Trial  # noqa: E402

X = torch.randn(8, 16)


def named(call: Callable[[], Any], parameters: tuple[Any, ...] = (), outputs: Any = X) -> list[str]:
    return computing_operators(listed(call, [*parameters])[1].operators, (X,), outputs)


@torch.library.custom_op("test_operators::positive", mutates_args=())
def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch.relu(X), "aten::relu"),
        (lambda: X @ X.t(), "aten::mm"),
        (lambda: X.clone().mul_(2.0), "aten::mul_"),
        (lambda: torch.add(X, X, out=torch.empty_like(X)), "aten::add"),
        (lambda: torch.ops.aten.clamp_min.default(X, 0.0), "aten::clamp_min"),
        (lambda: getattr(torch.nn.functional, "soft" + "max")(X, dim=1), "aten::_softmax"),
        (lambda: X.mean(), "aten::mean"),
        (lambda: _positive(X), "aten::relu"),
        (lambda: [torch.relu(row) for row in X], "aten::relu"),
        (lambda: X.numpy() * 2, "torch.Tensor.numpy"),
        (lambda: [2 * value for value in X.flatten().tolist()], "torch.Tensor.tolist"),
    ],
)
def test_an_operator_that_computes_is_named_however_it_is_called(call: Callable[[], Any], name: str) -> None:
    assert name in named(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty_like(X),
        lambda: torch.zeros(8, 16),
        lambda: X.t().contiguous().view(-1),
        lambda: X.half().float(),
        lambda: torch.cat([X, X]).permute(1, 0).reshape(4, -1),
        lambda: torch.nn.functional.pad(X, (1, 1)),
        lambda: X[0].sum(),
        lambda: X[:1].mean(dim=1),
        lambda: float(X[0, 0]),
        lambda: X.equal(X.clone()),
        lambda: X.is_floating_point(),
    ],
)
def test_operators_that_allocate_rearrange_or_work_on_little_do_not_compute(call: Callable[[], Any]) -> None:
    assert named(call) == []


LARGE = torch.randn(4096)
MANY = torch.randn(100)


def test_a_step_per_output_beside_a_large_input_finishes_what_kernels_computed() -> None:
    found = listed(lambda: (MANY == 0).logical_not().sum() + MANY.exp().logsumexp(0), [])[1].operators
    assert computing_operators(found, (LARGE,), MANY) == []


def test_much_work_per_output_beside_a_large_input_computes() -> None:
    square = MANY.view(10, 10)
    found = listed(lambda: torch.linalg.matrix_exp(square), [])[1].operators
    assert "aten::linalg_matrix_exp" in computing_operators(found, (LARGE,), square)


def test_operators_of_parameters_alone_prepare_them() -> None:
    weight = torch.randn(64, 64)

    def call() -> Any:
        packed = weight.abs().exp()
        return packed.sum()

    assert named(call, (weight,)) == []
    assert named(lambda: (weight.abs() * X.sum()).sum(), (weight,)) == ["aten::sum", "aten::mul"]


@pytest.mark.parametrize(
    ("call", "is_partial"),
    [
        (lambda: torch.empty(4, 128).view(4, 8, 16).sum(0), True),
        (lambda: torch.zeros(4, 128).mean(0), True),
        (lambda: X.sum(0), False),
        (lambda: torch.relu(X).sum(0), False),
        (lambda: torch.empty_like(X).copy_(X).sum(0), False),
        (lambda: (X + torch.empty_like(X)).sum(0), False),
    ],
)
def test_sums_of_results_of_kernels_are_distinguished_from_others(call: Callable[[], Any], is_partial: bool) -> None:
    (found,) = [name for name in named(call) if name.startswith(("aten::sum", "aten::mean"))]
    assert found.endswith(" of what kernels wrote") is is_partial


def test_small_operators_count_together() -> None:
    assert named(lambda: [X[row].relu() for row in range(2)]) == []
    assert named(lambda: [X[row].relu() for row in range(8)]) == ["aten::relu"]


ROWS = torch.randn(64, 256)
OUTPUT = torch.empty(64, 256)
QUANTISED = "scale = x.abs().max() / 127\n        return (x / scale).round().clamp(-127, 127) * scale"


def counted(call: Callable[[], Any], *, share: float = 0.35, of_reference: int | None = 10 * 65_536) -> list[str]:
    """Operators that computed in a call on `ROWS`, whose output was made by kernels."""
    return computing_operators(listed(call, [])[1].operators, (ROWS,), OUTPUT, share, lambda: of_reference)


def no_result(call: Callable[[], Any]) -> Callable[[], None]:
    def wrapper() -> None:
        call()

    return wrapper


HELPERS = {
    "the largest absolute value": lambda: ROWS.abs().max(),
    "validation": lambda: bool((ROWS < -1e9).any()),
    "saved statistics": lambda: (ROWS.mean(-1), torch.rsqrt(ROWS.pow(2).mean(-1) + 1e-6)),
}


@pytest.mark.parametrize("call", HELPERS.values(), ids=HELPERS)
def test_operators_that_leave_little_are_helpers(call: Callable[[], Any]) -> None:
    assert counted(call) == []


@pytest.mark.parametrize("call", HELPERS.values(), ids=HELPERS)
def test_what_does_most_of_the_references_work_is_no_helper(call: Callable[[], Any]) -> None:
    assert counted(call, of_reference=2 * 65_536) != []
    assert counted(call, of_reference=None) != []


@pytest.mark.parametrize("call", HELPERS.values(), ids=HELPERS)
def test_a_share_of_0_allows_no_helper(call: Callable[[], Any]) -> None:
    assert counted(call, share=0.0) != []


@pytest.mark.parametrize(
    "call",
    [lambda: torch.relu(ROWS), lambda: torch.relu(ROWS).clone(), lambda: torch.empty_like(ROWS).copy_(ROWS.exp())],
    ids=["result", "copy of a result", "copy in place"],
)
def test_operators_that_leave_much_compute(call: Callable[[], Any]) -> None:
    assert counted(call) != []


def test_memory_that_is_freed_before_a_launch_is_not_left() -> None:
    def call() -> Any:
        scale = ROWS.abs().max()
        return torch.ops.test_operators.positive(scale)

    assert counted(call) == []


def test_a_sort_counts_where_it_is_not_small() -> None:
    indices = torch.randint(0, 8, (16,))
    assert counted(no_result(lambda: indices.sort())) == []
    assert "aten::sort" in counted(no_result(lambda: ROWS[:4].sort()))


def test_a_flood_of_copies_does_not_hide_an_operator() -> None:
    def call() -> Any:
        place = torch.empty_like(ROWS)
        for _ in range(50):
            place.copy_(ROWS)
        return torch.softmax(ROWS, 1)

    assert counted(call) == ["aten::_softmax"]


def test_a_triangle_of_what_kernels_wrote_is_marked() -> None:
    (name,) = counted(lambda: torch.empty(64, 256).tril_())
    assert name == "aten::tril_ of what kernels wrote"


def test_bytes_of_the_operators_of_a_reference() -> None:
    # 512 numbers of 4 bytes: relu takes and returns them, and so does the product with a number.
    reference = reference_of("return (torch.relu(x) * 2.0).clone()")
    assert bytes_moved(reference, reference.inputs(0)) == 4 * 512 * 4


def test_the_probe_compares_operators_with_those_of_the_reference() -> None:
    reference = reference_of(QUANTISED, inputs="torch.randn(64, 256)")
    trial = Trial([ROWS], OUTPUT)
    probe = OperatorsProbe()
    executed = listed(lambda: ROWS.abs().max(), [])[1]
    facts = {"operators": executed.operators, "launches": ["quantise"]}
    probe.compare(DirectCall(reference, trial, "cpu"), CallEffects(operators=facts))
    assert (probe.computing, probe.launches) == ((), ("quantise",))


@pytest.mark.parametrize(("device", "launches"), [("cpu", ()), ("cuda", None)])
def test_a_call_without_an_observed_launch(device: str, launches: tuple[str, ...] | None) -> None:
    probe = OperatorsProbe()
    call = DirectCall(reference_of("return torch.relu(x)"), Trial([X], X), device)
    probe.compare(call, CallEffects(operators={"operators": [], "launches": []}))
    assert probe.launches == launches


class Graph:
    """A class of CUDA graphs without a device."""

    def capture_begin(self) -> None:
        """Nothing is captured."""

    def capture_end(self) -> None:
        """Nothing is captured."""

    def replay(self) -> None:
        """Nothing is replayed."""


def test_a_replay_of_an_own_graph_is_listed_as_its_capture() -> None:
    from kernelrl_judge.runner.own_graphs import watched

    graph = watched(Graph)()
    graph.capture_begin()
    kept = torch.softmax(ROWS, 1)
    graph.capture_end()
    assert counted(graph.replay) == ["aten::_softmax"]
    assert counted(lambda: torch.empty_like(kept)) == []


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner, max_size=4)))
def test_any_list_from_a_runner_is_read(found: Any) -> None:
    assert computing_operators(found, (X,), X) == []
