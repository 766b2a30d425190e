"""Shares of the device time of own and of library kernels, by times worked by hand, and by recorded lists of nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_tasks import reference as reference_of

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.peer.recordings import DeviceNode, NotRecorded
from kernelrl_judge.probes import ownership
from kernelrl_judge.probes.ownership import Ownership, WorkTimes, library_share, measure_ownership, own_share
from kernelrl_judge.replay.slope import ReplayWindow
from kernelrl_judge.task.comparison import tolerance


def times(whole: float, without_own: float, library: float, reference: float | None = 100.0) -> WorkTimes:
    return WorkTimes(whole, without_own, library, reference)


def test_the_share_of_a_library_is_over_the_time_of_a_fast_candidate() -> None:
    # 80 us of which the library takes 20.
    assert library_share(times(80.0, 20.0, 20.0)) == pytest.approx(0.25)


def test_a_kernel_that_waits_does_not_make_the_share_small() -> None:
    # The reference takes 100 us; the candidate waits until it takes 10,000.
    assert library_share(times(10_000.0, 90.0, 90.0)) == pytest.approx(0.9)


def test_copies_do_not_make_the_share_small() -> None:
    # 400 us of copies beside 30 us of the library and 10 us of own kernels: 30 of 40.
    assert library_share(times(440.0, 430.0, 30.0)) == pytest.approx(0.75)


def test_a_reference_that_cannot_be_recorded_is_not_compared() -> None:
    assert library_share(times(400.0, 20.0, 20.0, None)) == pytest.approx(0.05)


@pytest.mark.parametrize("found", [times(10.0, 30.0, 30.0), times(10.0, 40.0, 5.0), times(0.0, 0.0, 1.0)])
def test_a_share_is_at_most_1(found: WorkTimes) -> None:
    assert 0.0 <= library_share(found) <= 1.0


def test_own_kernels_save_the_time_that_is_missing_without_them() -> None:
    assert own_share(times(80.0, 20.0, 20.0)) == pytest.approx(0.75)
    assert own_share(times(10.0, 12.0, 12.0)) == 0.0


class Replayed:
    """Recordings with times by the kinds of nodes that are enabled."""

    def __init__(self, nodes: list[DeviceNode], us: dict[str, float], output: Any) -> None:
        self.nodes, self._us, self._output = nodes, us, output
        self.described = [None] * 2
        self._on = {"own", "library", "glue"}

    def write(self, slots: Any, imposed: Any) -> None:
        """The inputs do not matter."""

    def switch(self, graph: int, *, own: bool, glue: bool) -> None:
        self._on = {"library"} | ({"own"} if own else set()) | ({"glue"} if glue else set())

    def run(self, graph: int = 0) -> ReplayWindow:
        calls_us = sum(value for kind, value in self._us.items() if kind in self._on)
        return ReplayWindow(2, 2 * calls_us, 0.0, 2 * calls_us, 2 * calls_us, 1.98)

    def output(self, like: Any, call: int) -> Any:
        return self._output(like)


def wrong(like: Any) -> Any:
    return like + 1.0


def right(like: Any) -> Any:
    return like


def measured(
    monkeypatch: pytest.MonkeyPatch,
    us: dict[str, float],
    reference_us: float | None,
    *,
    share: float = 0.35,
    body: str = "return torch.relu(x)",
    output: Any = wrong,
) -> Ownership:
    """Ownership of a call with one node of each kind in `us`.

    Args:
        output: of the replay without own kernels, from the expected one.
    """
    monkeypatch.setattr(ownership, "_reference_us", lambda *_: reference_us)
    nodes = [DeviceNode(f"{kind}_kernel", kind, 2) for kind in us]
    recordings: Any = Replayed(nodes, us, output)
    reference = reference_of(body, settings=EvaluationSettings(library_share=share))
    recorder: Any = None
    return measure_ownership(recordings, reference, recorder, tolerance(reference.settings))


def test_a_small_helper_of_a_library_does_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, {"own": 90.0, "library": 10.0}, 200.0)
    assert (found.computing_operators, found.library_kernels) == (None, ("library_kernel",))
    assert found.launches == ("own_kernel",)
    assert found.own_kernel_share == pytest.approx(0.9)


@pytest.mark.parametrize("glue_us", [0.0, 5000.0])
def test_a_library_beside_a_kernel_that_waits_computes(monkeypatch: pytest.MonkeyPatch, glue_us: float) -> None:
    found = measured(monkeypatch, {"own": 5000.0, "library": 50.0, "glue": glue_us}, 60.0)
    assert found.computing_operators == ("library_kernel",)


def test_a_limit_of_0_allows_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, {"own": 1000.0, "library": 0.5}, 2000.0, share=0.0)
    assert found.computing_operators == ("library_kernel",)


def test_copies_and_fills_are_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, {"own": 10.0, "glue": 500.0}, 20.0, share=0.0)
    assert found.computing_operators is None
    assert found.library_kernel_share == 0.0


def test_a_call_without_own_kernels_has_no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, {"library": 10.0}, 20.0)
    assert (found.launches, found.own_kernel_share, found.decoy) == ((), 0.0, None)


def test_a_right_output_without_own_kernels_shows_decoys(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, {"own": 10.0}, None, output=right)
    assert found.decoy is not None


def test_an_output_that_the_draws_do_not_move_shows_decoys_by_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 512 drawn numbers the largest is between 2 and 4.
    body = "return x.abs().amax().log2().floor() + torch.arange(2)"
    found = measured(monkeypatch, {"own": 10.0}, None, body=body, output=right)
    assert found.decoy is not None


def test_one_right_output_that_an_earlier_call_left_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []

    def first(like: Any) -> Any:
        left.append(like)
        return left[0]

    assert measured(monkeypatch, {"own": 10.0}, None, output=first).decoy is None
    assert len(left) == 2


@pytest.mark.parametrize(("tolerances", "expected"), [(1.5, False), (2.5, True)])
def test_outputs_differ_if_none_between_them_is_right_for_both(tolerances: float, expected: bool) -> None:
    limit = tolerance(EvaluationSettings())
    one = torch.ones(())
    other = one + tolerances * (limit.atol_of(one.dtype) + limit.rtol_of(one.dtype))
    trials: list[Any] = [SimpleNamespace(expected=output) for output in (one, other)]
    assert ownership._differ(*trials, limit) is expected


def test_an_output_that_no_input_moves_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The memory holds the output of an earlier call, which is right as well.
    found = measured(monkeypatch, {"own": 10.0}, None, body="return x.mean() * 1e-9 + 1.0", output=right)
    assert found.decoy is None


def test_a_reference_that_cannot_be_recorded_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise NotRecorded("it waits", of_reference=True)

    monkeypatch.setattr(ownership, "ReferenceRecordings", refuse)
    reference = reference_of("return torch.relu(x)")
    recorder: Any = None
    assert ownership._reference_us(recorder, reference, reference.trial(0)) is None
