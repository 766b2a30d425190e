"""The judge process of `evaluator_scaling.py`: the judge as it is, which notes how long the steps of a request take.

    python -P benchmarks/staged_judge.py FOLDER CHANNEL...

Appends one line of JSON to a file of FOLDER for each request: its source, begin and end, and seconds by step. All times
are on the clock `time.monotonic`, which the processes of a machine share. A runner prints when it reached the steps of
its start; the judge reads that from the output of the candidate.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

_MARK = "@@"
STEPS: defaultdict[str, float] = defaultdict(float)
"""Seconds by step of the current request."""


def timed(owner: Any, method: str, step: str) -> None:
    """Replace a method by one that counts its time as that of a step."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def measured(*arguments: Any, **named: Any) -> Any:
        started = time.monotonic()
        try:
            return original(*arguments, **named)
        finally:
            STEPS[step] += time.monotonic() - started

    setattr(owner, method, measured)


def note_steps_of_judge() -> None:
    from kernelrl_judge.peer import channel, lease, process, session

    timed(process.RunnerProcess, "__init__", "fork")
    timed(session.RunnerSession, "start", "wait for the runner")
    timed(channel.RunnerChannel, "_wait_for_compilation", "compilation in the runner")
    timed(channel.RunnerChannel, "_build", "build on request")
    original = lease.CandidateLease.held

    @contextlib.contextmanager
    def held(self: Any, *, alone: bool) -> Iterator[None]:
        kind = "exclusive" if alone else "shared"
        asked = time.monotonic()
        with original(self, alone=alone):
            got = time.monotonic()
            STEPS[f"wait for a lease, {kind}"] += got - asked
            try:
                yield
            finally:
                STEPS[f"lease, {kind}"] += time.monotonic() - got

    mock.patch.object(lease.CandidateLease, "held", held).start()


def note_steps_of_runner() -> None:
    from kernelrl_judge.judge import candidate_run
    from kernelrl_judge.runner import main as runner

    reached: dict[str, float] = {}

    def mark(name: str, step: str) -> None:
        original = getattr(runner, name)

        @functools.wraps(original)
        def marked(*arguments: Any) -> Any:
            reached.setdefault("begin", time.monotonic())
            result = original(*arguments)
            reached[step] = time.monotonic()
            return result

        setattr(runner, name, marked)

    mark("Turn", "wait for a turn")
    mark("_enter_sandbox", "sandbox")
    mark("_make_context", "context")
    mark("_loaded_recorder", "recorder")
    last = runner._loaded_recorder

    def loaded_recorder(*arguments: Any) -> Any:
        result = last(*arguments)
        os.write(1, f"{_MARK}{json.dumps(reached)}{_MARK}".encode())
        return result

    mock.patch.object(runner, "_loaded_recorder", loaded_recorder).start()
    facts = candidate_run._CandidateRun.facts

    def with_marks(self: Any, *arguments: Any) -> Any:
        parts = self._session.process.printed.split(_MARK)
        if len(parts) > 2:
            times = json.loads(parts[1])
            before = times.pop("begin")
            for step, at in times.items():
                STEPS[f"start of the runner: {step}"] += at - before
                before = at
        return facts(self, *arguments)

    mock.patch.object(candidate_run._CandidateRun, "facts", with_marks).start()


def main() -> None:
    from kernelrl_judge.judge import main as judge

    note_steps_of_judge()
    note_steps_of_runner()
    output = Path(sys.argv[1], f"{os.getpid()}.jsonl")
    evaluated = judge._evaluated

    def noted(message: dict[str, Any], resources: Any) -> dict[str, Any]:
        STEPS.clear()
        began, cpu = time.monotonic(), time.process_time()
        reply = evaluated(message, resources)
        row = {
            "source": message["request"]["source_sha256"],
            "began": began,
            "ended": time.monotonic(),
            "steps": {**STEPS, "processor time of the judge": time.process_time() - cpu},
        }
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return reply

    judge._evaluated = noted
    judge.main(sys.argv[2:])


if __name__ == "__main__":
    main()
