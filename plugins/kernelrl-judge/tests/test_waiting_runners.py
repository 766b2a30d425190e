"""The runner that waits for the next candidate while another serves the present one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kernelrl_testing.waiting import DEADLINE_S

PROGRAM = """\
import json, os, signal
from kernelrl_judge.peer.nursery import Nursery, Zygotes

zygotes = Zygotes(Nursery())

import attrs
from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.peer.cancellation import CancelWatch
from kernelrl_judge.peer.runners import Runners
from kernelrl_judge.protocol.frames import FrameKind

setting = zygotes.setting("kernelrl_plugin_cpp.runner:CppRunner", {}, False)
settings = EvaluationSettings(timeout_s=60)
runners = Runners(zygotes, CancelWatch(os.pipe()[0]))
found = {}


def pid(process):
    return process._pid


def waiting():
    return next(iter(runners._waiting.values())).process


with runners.runner(setting, settings, starts_next=True) as first:
    found["first starts"] = first.wait_for_start().kind is FrameKind.STARTED
    first.files.share_text(b"of the first candidate")
    second_pid = pid(waiting())
    found["both live"] = first.alive and waiting().alive and pid(first) != second_pid
found["the first ends"] = not os.path.exists(f"/proc/{pid(first)}")

with runners.runner(setting, settings, starts_next=True) as second:
    found["the one that waited serves"] = pid(second) == second_pid
    found["it has no file of the first"] = os.fstat(second.files.inputs).st_size == 0
    found["it starts"] = second.wait_for_start().kind is FrameKind.STARTED
    third = waiting()
    os.kill(pid(third), signal.SIGKILL)
    while third.alive:
        pass

with runners.runner(setting, settings, starts_next=True) as fourth:
    found["one that died is replaced"] = pid(fourth) != pid(third)
    found["the replacement starts"] = fourth.wait_for_start().kind is FrameKind.STARTED
    fifth = waiting()

with runners.runner(setting, attrs.evolve(settings, memory_mib=321), starts_next=False) as sixth:
    found["one with other limits does not serve"] = pid(sixth) != pid(fifth) and waiting() is fifth

with runners.runner(setting, attrs.evolve(settings, memory_mib=321), starts_next=True):
    found["one with other limits is replaced"] = waiting() is not fifth
    last = waiting()
found["the replaced one ends"] = not os.path.exists(f"/proc/{pid(fifth)}")
runners.close()
found["none is left"] = not os.path.exists(f"/proc/{pid(last)}")
print(json.dumps(found))
"""
FACTS = (
    "first starts",
    "both live",
    "the first ends",
    "the one that waited serves",
    "it has no file of the first",
    "it starts",
    "one that died is replaced",
    "the replacement starts",
    "one with other limits does not serve",
    "one with other limits is replaced",
    "the replaced one ends",
    "none is left",
)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("fact", FACTS)
def test_runners(facts: dict[str, Any], fact: str) -> None:
    assert facts[fact]


def test_every_fact_is_tested(facts: dict[str, Any]) -> None:
    assert facts.keys() == {*FACTS}
