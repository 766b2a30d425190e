"""The runners of one judge: each serves one candidate, and on a GPU the next one starts meanwhile.

A runner takes longer to start than most candidates to be called: its sandbox, and a context that the driver creates. A
runner that waits has received nothing. It is a fork of the zygote like every other, and serves one candidate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.peer.cancellation import CancelWatch
from kernelrl_judge.peer.nursery import Setting, Zygote, ZygoteDied, ZygoteNotStarted, Zygotes
from kernelrl_judge.peer.process import RunnerLimits, RunnerProcess
from kernelrl_judge.protocol.forks import NotForked

__all__ = ["Runners"]

_END_S = {"cuda": 10.0, "cpu": 0.5}
"""Time that the end of a runner is waited for. Its device memory must be free for the next candidate. On the CPU,
processes that end slowly disturb no one."""


@attrs.frozen
class _Waiting:
    """A runner without a candidate."""

    process: RunnerProcess
    limits: RunnerLimits


class Runners:
    """Runners forked from the zygotes of a judge."""

    def __init__(self, zygotes: Zygotes, cancel_watch: CancelWatch) -> None:
        self._zygotes = zygotes
        self._cancel_watch = cancel_watch
        self._waiting: dict[Zygote, _Waiting] = {}
        self._ending: list[RunnerProcess] = []

    @contextlib.contextmanager
    def runner(self, setting: Setting, settings: EvaluationSettings, *, starts_next: bool) -> Iterator[RunnerProcess]:
        """A runner for one candidate, which is killed after the `with` block; `settle` waits until it has ended.

        Args:
            settings: limits of the candidate.
            starts_next: start the runner of the next candidate.

        Raises:
            ZygoteNotStarted, ZygoteDied, NotForked: there is no runner.
        """
        zygote = self._zygotes.zygote(setting)
        # The limit of CPU time is for processes that escape the clock. Windows and threads may use more than one second
        # of CPU time per second.
        limits = RunnerLimits(settings.memory_mib, int(settings.timeout_s * 4) + 60)
        process = self._taken(zygote, limits) or self._started(zygote, limits, setting.device)
        if starts_next:
            self._start_next(zygote, limits, setting.device)
        try:
            yield process
        finally:
            process.kill()
            self._ending.append(process)
            if setting.device == "cpu":
                self.settle()

    def settle(self) -> None:
        """Wait until the runners of earlier candidates have ended and the resources that they used are free."""
        while self._ending:
            process = self._ending.pop()
            process.end()
            process.close()

    def close(self) -> None:
        """End all runners."""
        self._ending += [waiting.process for waiting in self._waiting.values()]
        self._waiting.clear()
        for process in self._ending:
            process.kill()
        self.settle()

    def _started(self, zygote: Zygote, limits: RunnerLimits, device: str) -> RunnerProcess:
        return RunnerProcess(zygote, limits, end_s=_END_S[device], cancel_watch=self._cancel_watch)

    def _taken(self, zygote: Zygote, limits: RunnerLimits) -> RunnerProcess | None:
        """The runner that waits, if it fits and has not ended."""
        waiting = self._waiting.get(zygote)
        if waiting is None or waiting.limits != limits:
            return None
        del self._waiting[zygote]
        if waiting.process.alive:
            return waiting.process
        # A reason that lasts ends the next one as well, and is reported then.
        waiting.process.close()
        return None

    def _start_next(self, zygote: Zygote, limits: RunnerLimits, device: str) -> None:
        """Let a runner wait for the next candidate, in the place of one with other limits or of a zygote that ended."""
        for other, waiting in [*self._waiting.items()]:
            if other is zygote or not other.alive:
                waiting.process.kill()
                self._ending.append(waiting.process)
                del self._waiting[other]
        # The next candidate starts its own runner, and gets the error.
        with contextlib.suppress(ZygoteNotStarted, ZygoteDied, NotForked):
            self._waiting[zygote] = _Waiting(self._started(zygote, limits, device), limits)
