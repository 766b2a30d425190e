"""Single replays: the recording from which kernels are attributed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.probes.replay_trials import ReplayTrials
from kernelrl_judge.task.trial import Trial


class Recordings:
    """Substitute for `CandidateRecordings` whose last recording has the shapes of the task, or others."""

    def __init__(self, fits: bool) -> None:
        self._fits = fits
        self.recorded: list[Any] = []

    def fits(self, slots: list[Any]) -> bool:
        return self._fits

    def leave(self) -> None: ...

    def record(self, slots: list[Any], *_: Any, **__: Any) -> None:
        self.recorded += slots


@pytest.mark.parametrize(("fits", "recorded"), [(True, []), (False, [["of the task"]])])
def test_the_last_recording_is_one_of_the_task(fits: bool, recorded: list[Any]) -> None:
    recordings: Any = Recordings(fits)
    reference: Any = SimpleNamespace(
        trial=lambda index: Trial(["of the task"], None),
        inputs=lambda index: [],
        drawn_names=(),
        imposed_state={},
        changed_state={},
    )
    session: Any = None
    ReplayTrials(session, recordings, EvaluationSettings()).record_task(reference)
    assert recordings.recorded == recorded
