"""What a candidate's last calls look for: settings of its process, its mode, and errors."""

from __future__ import annotations

import gc
import random
import signal
import threading
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch
from stress_tasks import reference

from kernelrl_judge.dialogue import CandidateFailed
from kernelrl_judge.failures import Failure, Stage
from kernelrl_judge.later_calls import asks_for_its_mode, failed_later, refused, with_other_row
from kernelrl_judge.process_settings import changed, reading
from kernelrl_judge.runner_later import at_once, later_call
from kernelrl_judge.running import RunnerEnded

read = reading()


@pytest.fixture(autouse=True)
def settings_as_they_were() -> Iterator[None]:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.set_grad_enabled(True)
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_flush_denormal(False)
    gc.enable()


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("gradients", lambda: torch.set_grad_enabled(False)),
        ("the default dtype", lambda: torch.set_default_dtype(torch.float64)),
        ("denormal numbers or the rounding of the processor", lambda: torch.set_flush_denormal(True)),
        ("numbers drawn by random", random.random),
    ],
)
def test_a_setting_that_was_changed_is_named(setting: str, change: Callable[[], object]) -> None:
    before = read()
    assert changed(before, read()) == []
    change()
    assert changed(before, read()) == [setting]


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (CandidateFailed(Failure(Stage.FORWARD, "error", "ValueError", "")), ["a later call raises ValueError"]),
        (CandidateFailed(Failure(Stage.FORWARD, "memory", "OutOfMemoryError", "")), []),
        (RunnerEnded("exit 3"), ["a later call ends its process (exit 3)"]),
        (RunnerEnded("signal 9"), []),
        (RunnerEnded(f"signal {signal.SIGXCPU}"), []),
    ],
)
def test_a_later_call_that_ends_all_others_is_told(ended: CandidateFailed | RunnerEnded, said: list[str]) -> None:
    assert [finding.evidence for finding in failed_later(ended)] == said


def test_what_numpy_draws_is_named_where_its_state_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    before, state = read(), numpy.random.get_state()
    monkeypatch.setattr(numpy.random, "get_state", lambda legacy=True: state)
    numpy.random.rand()
    assert changed(before, read()) == ["numbers drawn by numpy"]


def test_a_handler_that_says_it_is_equal_to_any_other_is_named() -> None:
    class Handler:
        def __call__(self, *_: object) -> None: ...

        def __eq__(self, _: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    before = read()
    usual = signal.signal(signal.SIGUSR1, Handler())
    try:
        assert changed(before, read()) == ["handlers of signals"]
    finally:
        signal.signal(signal.SIGUSR1, usual)


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        # There was one thread before, and gradients were enabled, as in most processes.
        ("the number of threads", lambda: torch.set_num_threads(1)),
        ("gradients", lambda: torch.set_grad_enabled(False)),
        ("the seed of torch", lambda: torch.manual_seed(7)),
        ("the garbage collector", gc.disable),
    ],
)
def test_a_call_that_makes_a_setting_what_it_usually_is_is_seen(setting: str, change: Callable[[], object]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    found = later_call(change, read, read(), threads=2, gradients=True)
    assert found.changed == [setting]
    assert torch.get_num_threads() == 1


def test_a_call_may_draw_numbers_and_raise() -> None:
    def call() -> None:
        random.random()
        numpy.random.rand()
        torch.rand(2)
        raise ValueError

    found = later_call(call, read, read(), threads=0, gradients=False)
    assert isinstance(found.error, ValueError)
    assert found.changed == []


@pytest.mark.parametrize(
    ("forward", "asks"),
    [
        ("return x * 2.0 if self.training else x", True),
        ("return (lambda: torch.nn.functional.dropout(x, training=self.training))()", True),
        # Torch's own modules ask for theirs: kernels for training leave the other mode out.
        ("return self.norm(x)", False),
    ],
)
def test_a_task_asks_for_its_mode_in_code_of_its_own(forward: str, asks: bool) -> None:
    assert asks_for_its_mode(reference(forward, init="self.norm = torch.nn.BatchNorm1d(64)")) is asks


@pytest.mark.parametrize(
    ("forward", "inputs", "number"),
    [
        ("return torch.zeros(9).index_add(0, i, x)", "torch.rand(30), torch.randint(0, 9, (30,))", 9),
        ("assert (i > 1).all(); return x / i", "torch.rand(30), torch.randint(2, 9, (30,))", 1),
        ("return x * i", "torch.rand(30), torch.randint(0, 9, (30,))", None),
        ("return x * i", "torch.rand(30), torch.arange(30)", None),
    ],
)
def test_an_integer_out_of_its_range_that_the_task_refuses(forward: str, inputs: str, number: int | None) -> None:
    task = reference(forward, inputs, names="x, i")
    given = task.inputs(1)
    found = refused(task, given)
    if number is None:
        assert found is None
    else:
        assert found is not None
        assert found[1][20] == number
        assert (found[1] != given[1]).sum() == 1


@pytest.mark.parametrize("arranged", ["torch.randint(0, 9, (5, 6)).t()", "torch.randint(0, 9, (5, 1)).expand(5, 6)"])
def test_an_input_of_other_strides_holds_the_integer_and_keeps_them(arranged: str) -> None:
    task = reference("return torch.zeros(9).index_add(0, i.flatten(), x)", f"torch.rand(30), {arranged}", names="x, i")
    task.facts["refused"] = 1, 9
    given = task.inputs(1)
    found = refused(task, given)
    assert found is not None
    assert (found[1] == 9).any()
    assert not (given[1] == 9).any()
    assert found[1].stride() == given[1].stride()


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 256), ("int8", 128)])
def test_a_number_that_the_type_of_an_input_lacks_is_not_tried(dtype: str, most: int) -> None:
    drawn = f"torch.randint(0, {most}, (30,), dtype=torch.{dtype})"
    task = reference(f"return torch.zeros({most}).index_add(0, i.long(), x)", f"torch.rand(30), {drawn}", names="x, i")
    found = refused(task, task.inputs(1))
    # A byte has nothing below zero either.
    assert found is None if dtype == "uint8" else found is not None and int(found[1][20]) == -1


def test_one_row_of_the_largest_parameter_is_changed() -> None:
    state = {"bias": torch.zeros(4), "weight": torch.randn(4, 8), "steps": torch.zeros(64, dtype=torch.int64)}
    found = with_other_row(state)
    assert (found["weight"] != state["weight"]).any(dim=1).sum() == 1
    assert all(torch.equal(found[name], state[name]) for name in ("bias", "steps"))


def test_threads_call_at_once_and_none_of_their_errors_is_lost() -> None:
    begin = threading.Barrier(2)

    def met(number: int) -> int:
        begin.wait(10.0)
        return number

    assert at_once([lambda: met(1), lambda: met(2)], rounds=3) == [[1, 2]] * 3
    with pytest.raises(ZeroDivisionError):
        at_once([lambda: 1, lambda: 1 / 0], rounds=3)
