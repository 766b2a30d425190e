"""Numbers of calls, slopes and kinds of nodes of recordings, by numbers worked by hand."""

from __future__ import annotations

import pytest

from kernelrl_judge.replay.library import Node
from kernelrl_judge.replay.nodes import glue_numbers, kind_of, kinds, own_numbers, refused
from kernelrl_judge.replay.slope import ReplayWindow, charged, clock_agrees, per_call_us, planned, steady

MIB, GIB = 1 << 20, 1 << 30
L2 = 50 * MIB


def plan(*, input_bytes: int = 16 * MIB, output_bytes: int = 16 * MIB, call_us: float = 20.0, free: int = 128 * GIB):
    return planned(input_bytes=input_bytes, output_bytes=output_bytes, call_us=call_us, cache_bytes=L2, free_bytes=free)


def test_a_window_of_short_calls_has_200_us_of_work() -> None:
    # 200 / 20 = 10 calls and one for the remainder, made even; 1 GiB would be 32 calls.
    assert (plan().calls, plan().half) == (12, 6)


def test_a_window_moves_1_gib_where_that_is_less_than_200_us() -> None:
    # 64 MiB a call: 16 calls, and one for the remainder, made even.
    assert plan(input_bytes=32 * MIB, output_bytes=32 * MIB, call_us=5.0).calls == 18


def test_slots_exceed_the_cache_twice() -> None:
    # 8 MiB of inputs: 100 MiB are 12.5 input slots. The work alone would need 2.
    assert plan(input_bytes=8 * MIB, output_bytes=8 * MIB, call_us=1000.0).calls == 14


def test_one_call_that_moves_four_times_the_cache_is_a_window() -> None:
    found = plan(input_bytes=1 * GIB, output_bytes=1 * GIB, call_us=2500.0)
    assert (found.calls, found.half, found.reduced) == (1, 0, False)


def test_little_memory_allows_for_fewer_calls() -> None:
    # 3 copies of 16 MiB in and 5 of 16 MiB out are 128 MiB a call; a quarter of 2 GiB holds 4 calls.
    found = plan(free=2 * GIB)
    assert (found.calls, found.half, found.reduced) == (4, 2, True)


def test_memory_for_one_call_gives_one_call() -> None:
    found = plan(free=100 * MIB)
    assert (found.calls, found.half, found.reduced) == (1, 0, True)


def window(
    calls: int, calls_us: float, *, host_us: float = 0.0, ghz: float = 1.98, copies_us: float = 10.0
) -> ReplayWindow:
    return ReplayWindow(calls, calls_us, copies_us, calls_us + copies_us + 50.0, host_us, ghz)


USUAL = window(100, 2000.0, host_us=2100.0)


def test_constant_costs_cancel_in_the_slope() -> None:
    # 7 us of constant costs: (100 * 12.5 + 7) - (50 * 12.5 + 7) over 50 calls.
    assert per_call_us(window(100, 1257.0), window(50, 632.0)) == pytest.approx(12.5)


def test_a_single_call_is_its_window() -> None:
    assert per_call_us(window(1, 2500.0), None) == 2500.0


def test_a_window_with_another_sm_clock_is_not_steady() -> None:
    windows = [window(1, 1.0, ghz=ghz) for ghz in (1.98, 1.97, 1.98, 1.90, 1.95)]
    # The median is 1.97; 1.90 is 3.6 % below, 1.95 is 1 % below.
    assert steady(windows) == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("host_us", "agrees"),
    [(2060.0, True), (1958.0, True), (1950.0, False), (2310.0, True), (2320.0, False)],
)
def test_the_judges_clock_confirms_within_5_percent_and_messages(host_us: float, agrees: bool) -> None:
    # The device reports 2060 us: at least 1957 and at most 2163 + 150 us.
    assert clock_agrees([window(100, 2000.0, host_us=host_us)]) is agrees


def test_one_window_in_which_the_judge_was_late_decides_nothing() -> None:
    assert clock_agrees([*[USUAL] * 4, window(100, 2000.0, host_us=90_000.0)])


@pytest.mark.parametrize(("copies_us", "calls_us"), [(130.0, 2000.0), (145.0, 2000.0), (400.0, 2255.0)])
def test_copies_beyond_those_of_the_reference_are_time_of_the_calls(copies_us: float, calls_us: float) -> None:
    # The reference's copies take 100 us: 125 + 20 us are free.
    reference = window(100, 2000.0, copies_us=100.0)
    found = charged(window(100, 2000.0, copies_us=copies_us), reference)
    assert found.calls_us == pytest.approx(calls_us)


def test_a_negative_time_of_copies_is_not_confirmed() -> None:
    assert not clock_agrees([window(100, 2101.0, host_us=2200.0, copies_us=-1.0)])


def test_a_window_without_time_is_not_confirmed() -> None:
    assert not clock_agrees([ReplayWindow(100, 0.0, 0.0, 0.0, 2100.0, 0.0)])


def test_windows_without_a_clock_are_steady_together() -> None:
    assert steady([window(1, 1.0, ghz=0.0)] * 2) == [True, True]


def node(kind: str = "kernel", by: str = "runtime", name: str = "k", file: str = "", *, on_host: bool = False) -> Node:
    return Node(kind, on_host, by, name, file)


def fill(filled_bytes: int) -> Node:
    return Node("memset", False, "runtime", "", "", filled_bytes=filled_bytes)


TORCH = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (node(by="driver", name="softmax_kernel"), "own"),
        (node(by="driver", name="sm80_xmma_gemm_f32"), "own"),
        (node(file="/proc/self/fd/9"), "own"),
        (node(file="/tmp/libtorch_extension/candidate.so"), "own"),
        (node(file=TORCH, name="reduce_kernel"), "library"),
        (node(file=TORCH, name="vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"), "glue"),
        (node(file=TORCH, name="_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel"), "glue"),
        (node(by="other", name="sm80_xmma_gemm_f32"), "library"),
        (node("memcpy"), "glue"),
    ],
)
def test_the_file_that_brought_a_kernel_decides_whose_it_is(found: Node, kind: str) -> None:
    assert kind_of(found) == kind


def on(name: str, *addresses: int, file: str = TORCH, blocks: int = 8) -> Node:
    return Node("kernel", False, "runtime", name, file, blocks, frozenset(addresses))


SUM = "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>"
MAXIMUM = "at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, func_wrapper_t<float, MaxNanFunctor<float>>>>"
INPUTS = [(1000, 2000)]


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (on(SUM, 2500, 2600), "glue"),
        (on("at::native::vectorized_elementwise_kernel<4, DivFunctor>", 2500, blocks=1), "glue"),
        (on(MAXIMUM, 2500, 2600), "glue"),
        (on("at::native::reduce_kernel<512, 1, NormTwoOps<float>>", 2500, blocks=1), "glue"),
        (on("at::native::reduce_kernel<512, 1, NormTwoOps<float>>", 2500), "library"),
        (on(SUM, 1500, 2600), "library"),
        (on(SUM, 2500, 1500), "library"),
        (on(SUM, 2700, 2600), "library"),
        (on("at::native::vectorized_elementwise_kernel<4, DivFunctor>", 2500, blocks=2), "library"),
        (on("cublas_gemv", 2500, blocks=1), "library"),
    ],
    ids=[
        "sum",
        "division",
        "maximum",
        "small norm",
        "large norm",
        "of an input",
        "beside an input",
        "of other memory",
        "large",
        "product",
    ],
)
def test_a_library_may_finish_what_own_kernels_wrote(last: Node, kind: str) -> None:
    own = on("partial_sums", 1000, 2500, file="/proc/self/fd/9")
    assert kinds([own, last], INPUTS) == ["own", kind]


def test_a_library_may_finish_in_several_steps() -> None:
    own = on("partial_sums", 1000, 2500, file="/proc/self/fd/9")
    steps = [on(SUM, 2500, 2600), on("elementwise_kernel", 2600, 2700, blocks=1)]
    assert kinds([own, *steps], INPUTS) == ["own", "glue", "glue"]
    assert kinds([*steps, own], INPUTS) == ["library", "library", "own"]


def test_own_kernels_are_numbered_as_in_their_graph() -> None:
    nodes = [node(by="driver"), node(file=TORCH), node(by="driver")]
    assert own_numbers(nodes, first=2) == (2, 4)


def test_copies_fills_and_finishing_kernels_are_numbered_as_in_their_graph() -> None:
    own = on("partial_sums", 1000, 2500, file="/proc/self/fd/9")
    nodes = [own, on(SUM, 2500, 2600), node("memcpy"), fill(1 << 21), node("event wait"), on(SUM, 1500, 2600)]
    assert glue_numbers(nodes, 10, INPUTS) == (11, 12, 13)


@pytest.mark.parametrize(
    ("filled_bytes", "next_file", "is_glue"),
    [(4096, TORCH, False), (1 << 21, TORCH, True), (4096, "/proc/self/fd/9", True)],
)
def test_small_fills_before_kernels_of_a_library_are_no_glue(filled_bytes: int, next_file: str, is_glue: bool) -> None:
    nodes = [fill(filled_bytes), node("event wait"), node(file=next_file)]
    assert glue_numbers(nodes, 10, INPUTS) == ((10,) if is_glue else ())


def test_a_last_fill_is_glue() -> None:
    assert glue_numbers([node(file=TORCH), fill(4096)], 10, INPUTS) == (11,)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (node(), ""),
        (node("memcpy"), ""),
        (node("memset"), ""),
        (node("memcpy", on_host=True), "it copies between host and device memory"),
        (node("host"), "it adds a node of type 'host' to the graph"),
        (node("conditional"), "it adds a node of type 'conditional' to the graph"),
    ],
)
def test_nodes_that_cannot_be_replayed_on_new_inputs_are_refused(found: Node, reason: str) -> None:
    assert refused([node(), found]) == reason
