"""Kernels that misbehave: each ends as its outcome within its time, and the next good kernel is judged as ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import attrs
import psutil
import pytest

from kernelrl_core.errors import InfrastructureError, UsageError
from kernelrl_core.types import Outcome

LIMIT_S = 4.0
SOON_S = 30.0
"""What a busy machine may take for a moment's work."""

TRICKS: dict[str, tuple[str, set[Outcome]]] = {
    "hangs": ("while True: pass", {Outcome.TIMEOUT}),
    "sleeps": ("import time; time.sleep(1000)", {Outcome.TIMEOUT}),
    "forks without end": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        {Outcome.TIMEOUT, Outcome.RUNTIME_ERROR},
    ),
    "allocates without end": (
        "kept = []\nwhile True: kept.append(bytearray(1 << 25))",
        {Outcome.OUT_OF_MEMORY},
    ),
    "allocates a huge tensor": ("torch.ones(1 << 40)", {Outcome.OUT_OF_MEMORY}),
    "leaves with status 0": ("import os; os._exit(0)", {Outcome.RUNTIME_ERROR}),
    "leaves politely": ("raise SystemExit(0)", {Outcome.RUNTIME_ERROR}),
    "faults": ("import ctypes; ctypes.string_at(0)", {Outcome.RUNTIME_ERROR}),
    "closes every descriptor": ("import os; os.closerange(0, 64)", {Outcome.RUNTIME_ERROR}),
    "writes garbage to every descriptor": (
        "import os\nfor f in range(3, 64):\n    try: os.write(f, b'KRL1 garbage' * 50)\n    except OSError: pass",
        {Outcome.HACKED, Outcome.RUNTIME_ERROR},
    ),
    "raises what cannot be described": (
        "class E(Exception):\n    def __str__(self): raise E()\n    __repr__ = __str__\nraise E()",
        {Outcome.RUNTIME_ERROR},
    ),
    "raises an endless message": (
        "raise RuntimeError('x' * (1 << 28))",
        {Outcome.RUNTIME_ERROR, Outcome.OUT_OF_MEMORY},
    ),
}
"""What the kernel does at the beginning of `forward`, and how it may end."""

HARMLESS = {
    "kills its parent and its group": "import os, signal\nos.kill(os.getppid(), 9)\nos.killpg(0, 9)",
    "prints without measure": "import sys\nfor _ in range(128): sys.stdout.write('x' * (1 << 20))",
    "leaves a process behind": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)",
    "leaves a thread behind": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    "leaves a handler behind": "import atexit, time\natexit.register(time.sleep, 1000)",
    "patches comparison and clock": (
        "import time\ntorch.allclose = lambda *a, **k: True\ntime.time = time.monotonic = lambda: 0.0"
    ),
    "empties the modules": "import sys\nsys.modules.pop('kernelrl_judge.protocol', None)",
}
"""Tricks that have no effect on a kernel that is right all the same."""


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_ends_as_its_outcome_and_harms_nobody(bench: Any, doing: Any, good: str, name: str) -> None:
    code, allowed = TRICKS[name]
    begin = time.monotonic()
    # Who does not wait for the limit has the time that a busy machine takes.
    evaluation = bench.judge(doing(code), timeout_s=LIMIT_S if Outcome.TIMEOUT in allowed else SOON_S, memory_mib=1024)
    assert evaluation.outcome in allowed, evaluation
    assert time.monotonic() - begin < LIMIT_S + SOON_S
    assert len(evaluation.message) < 5000
    assert bench.judge(good).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", HARMLESS)
def test_a_trick_without_effect_leaves_the_verdict_alone(bench: Any, doing: Any, good: str, name: str) -> None:
    allowed = {Outcome.CORRECT, Outcome.RUNTIME_ERROR} if name.startswith("kills") else {Outcome.CORRECT}
    assert bench.judge(doing(HARMLESS[name])).outcome in allowed
    assert bench.judge(doing(HARMLESS[name]).replace("* 2.0", "* 3.0")).outcome is not Outcome.CORRECT
    assert bench.judge(good).outcome is Outcome.CORRECT


def test_the_environment_holds_nothing_of_ours(bench: Any, doing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "import os, sys\nraise RuntimeError(repr((sorted(os.environ), sys.argv, os.getcwd())))"
    message = bench.judge(doing(lines)).detail
    for word in ("KERNELRL", "TOKEN", "SECRET", "KEY", "USER", "pytest"):
        assert word not in message


def test_a_wrong_kernel_whose_comparison_is_patched_stays_wrong(bench: Any, doing: Any) -> None:
    source = doing("torch.allclose = torch.equal = lambda *a, **k: True").replace("* 2.0", "* 2.5")
    assert bench.judge(source).outcome is Outcome.INCORRECT


def test_no_process_is_left_after_closing(bench: Any, good: str) -> None:
    async def once() -> list[psutil.Process]:
        from kernelrl_plugin_local.config import LocalConfig
        from kernelrl_plugin_local.evaluator import LocalEvaluator

        evaluator = LocalEvaluator(LocalConfig(workers=1))
        before = set(psutil.Process().children(recursive=True))
        await evaluator.evaluate(bench.request(good))
        started = [p for p in psutil.Process().children(recursive=True) if p not in before]
        assert len(started) >= 2
        await evaluator.aclose()
        await evaluator.aclose()
        return started

    started = asyncio.run(once())
    _, alive = psutil.wait_procs(started, timeout=5)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_cancelling_a_waiter_leaves_the_evaluator_whole(bench: Any, doing: Any, good: str) -> None:
    async def scene() -> Outcome:
        slow = asyncio.create_task(bench.evaluator.evaluate(bench.request(doing("while True: pass"))))
        await asyncio.sleep(1.0)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return (await bench.evaluator.evaluate(bench.request(good))).outcome

    begin = time.monotonic()
    assert bench.runner.run(scene()) is Outcome.CORRECT
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("class Model: pass\n\ndef get_init_inputs(): return []\n", "get_inputs"),
        ("raise ValueError('no')\n", "ValueError"),
    ],
)
def test_a_task_that_cannot_be_used_is_named(bench: Any, good: str, reference: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        bench.judge(good, reference)
    assert "test/task" in str(caught.value)
    assert bench.judge(good).outcome is Outcome.CORRECT


def test_a_request_of_another_version_is_refused(bench: Any, good: str) -> None:
    request = attrs.evolve(bench.request(good), api_version="0.0")
    with pytest.raises(InfrastructureError, match=r"0\.0"):
        bench.runner.run(bench.evaluator.evaluate(request))


def test_a_source_that_is_not_the_hashed_one_is_refused(bench: Any, good: str) -> None:
    request = attrs.evolve(bench.request(good), source=good + "\n# changed")
    with pytest.raises(InfrastructureError, match="hash"):
        bench.runner.run(bench.evaluator.evaluate(request))


def test_a_kernel_that_hangs_does_not_keep_the_others_waiting(bench: Any, doing: Any, good: str) -> None:
    async def scene() -> float:
        async def judge(source: str) -> Outcome:
            return (await bench.evaluator.evaluate(bench.request(source, timeout_s=LIMIT_S))).outcome

        # The first of a kind starts the judge that takes over.
        for measured in (False, True):
            hanging = asyncio.create_task(judge(doing(f"import time; time.sleep(1000)  # {measured}")))
            await asyncio.sleep(0.2)
            begin = time.monotonic()
            assert await judge(good) is Outcome.CORRECT
            took_s = time.monotonic() - begin
            assert not (measured and hanging.done())
            assert await hanging is Outcome.TIMEOUT
        return took_s

    assert bench.runner.run(scene()) < LIMIT_S - 1
