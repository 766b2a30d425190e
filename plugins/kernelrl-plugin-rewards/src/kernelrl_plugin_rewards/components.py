"""The reward components: pure functions of a turn, before their weight.

Format and compile pay whether or not the kernel is right, so that a policy which gets nothing right yet still learns
something; that wrong never outweighs right is the business of the weights, which core checks. What a turn's verdict
does to its reward (`hacked`, `suspect`) is decided in core, before or instead of these.
"""

from __future__ import annotations

import math

from kernelrl_core.values import Outcome, Turn
from kernelrl_plugin_rewards.config import (
    CompileConfig,
    CorrectnessConfig,
    FormatConfig,
    LengthConfig,
    SpeedupConfig,
    ThinkingConfig,
)

__all__ = ["Compile", "Correctness", "Format", "Length", "Speedup", "Thinking"]


class Format:
    """1 for a reply with usable code, else the penalty."""

    def __init__(self, config: FormatConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        return self._config.penalty if turn.candidate is None else 1.0


class Compile:
    """1 for a kernel that builds, else 0."""

    def __init__(self, config: CompileConfig) -> None:
        pass

    def score(self, turn: Turn) -> float:
        built = turn.evaluation is not None and turn.evaluation.compiled
        return 1.0 if turn.correct or built else 0.0


class Correctness:
    """1 for a correct kernel; with `partial`, `partial_share` times the share of passed tests for a wrong one."""

    def __init__(self, config: CorrectnessConfig) -> None:
        self._partial_share = config.partial_share if config.mode == "partial" else 0.0

    def score(self, turn: Turn) -> float:
        if turn.correct:
            return 1.0
        evaluation = turn.evaluation
        if evaluation is None or evaluation.tests_total == 0 or turn.outcome is Outcome.HACKED:
            return 0.0
        return self._partial_share * (evaluation.tests_passed / evaluation.tests_total)


class Speedup:
    """Speedup of a correct kernel above the baseline, linearly or in doublings, from 0 to the cap.

    Without a measured speedup the score is 0.
    """

    def __init__(self, config: SpeedupConfig) -> None:
        self._config = config
        self._baseline = config.baseline if config.baseline is not None else float(config.curve == "log2")

    def score(self, turn: Turn) -> float:
        speedup = turn.speedup
        if speedup is None or speedup <= self._baseline:
            return 0.0
        gain = math.log2(speedup / self._baseline) if self._config.curve == "log2" else speedup - self._baseline
        return min(self._config.scale * gain, self._config.cap)


class Thinking:
    """1 for thinking of moderate length, less for none or for very much; 0 without code."""

    def __init__(self, config: ThinkingConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        if turn.candidate is None:
            return 0.0
        config, length = self._config, len(turn.extraction.thinking.strip())
        if length == 0:
            return config.without
        position = _position(length, config.full, config.long)
        return (1.0 - position) + config.beyond * position


class Length:
    """1 for a short source, falling linearly to 0 for a long one; 0 without code."""

    def __init__(self, config: LengthConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        if turn.candidate is None:
            return 0.0
        return 1.0 - _position(len(turn.candidate.source), self._config.full, self._config.none)


def _position(value: int, start: int, end: int) -> float:
    """Where `value` lies between `start` (0) and `end` (1), clamped to that range."""
    return min(max((value - start) / (end - start), 0.0), 1.0)
