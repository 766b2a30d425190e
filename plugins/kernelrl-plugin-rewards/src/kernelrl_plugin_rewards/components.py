"""The reward components: pure functions of a turn, before they are weighted.

`format` and `compile` score incorrect kernels too, so that a policy without any correct kernel has a learning signal.
The core checks that the weights never score an incorrect kernel above a correct one. The core also applies `hacked`
and `suspect`, which depend on the turn's verdict.
"""

from __future__ import annotations

import math

from kernelrl_core.api.rewards import Outcome, Reward, Turn
from kernelrl_plugin_rewards.config import (
    CompileConfig,
    CorrectnessConfig,
    CoverageConfig,
    CudaL1Config,
    FormatConfig,
    LengthConfig,
    MilestoneConfig,
    OverlongConfig,
    SpeedupConfig,
    ThinkingConfig,
)

__all__ = [
    "Compile",
    "Correctness",
    "Coverage",
    "CudaL1",
    "Format",
    "Length",
    "Milestone",
    "Overlong",
    "Speedup",
    "Thinking",
]


class Format(Reward):
    """1 for a reply with usable code, otherwise the penalty."""

    def __init__(self, config: FormatConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        return self._config.penalty if turn.candidate is None else 1.0


class Compile(Reward):
    """1 for a kernel that builds, otherwise 0."""

    def __init__(self, config: CompileConfig) -> None:
        pass

    def score(self, turn: Turn) -> float:
        built = turn.evaluation is not None and turn.evaluation.compiled
        return 1.0 if turn.correct or built else 0.0


class Correctness(Reward):
    """1 for a correct kernel; with `partial`, an incorrect one scores `partial_share` times its share of passed
    trials."""

    def __init__(self, config: CorrectnessConfig) -> None:
        self._partial_share = config.partial_share if config.mode == "partial" else 0.0

    def score(self, turn: Turn) -> float:
        if turn.correct:
            return 1.0
        evaluation = turn.evaluation
        if evaluation is None or evaluation.tests_total == 0 or turn.outcome is Outcome.HACKED:
            return 0.0
        return self._partial_share * (evaluation.tests_passed / evaluation.tests_total)


class Speedup(Reward):
    """Speedup of a correct kernel over `baseline`, linear or in doublings, from 0 to the cap.

    The score is 0 where no speedup was measured. With weight 1 and without a cap, beside `correctness` with weight 0.3,
    the sum is the score of Kevin (arXiv 2507.11948): S = 0.3 * correct + correct * T_baseline / T_kernel.
    """

    def __init__(self, config: SpeedupConfig) -> None:
        self._config = config
        self._baseline = config.baseline if config.baseline is not None else float(config.curve == "log2")

    def score(self, turn: Turn) -> float:
        speedup = turn.speedup
        if speedup is None or speedup <= self._baseline:
            return 0.0
        gain = math.log2(speedup / self._baseline) if self._config.curve == "log2" else speedup - self._baseline
        return _capped(self._config.scale * gain, self._config.cap)


class Milestone(Reward):
    """One of four scores: not correct, correct, faster than eager PyTorch, faster than `torch.compile` as well.

    Source: CUDA Agent (arXiv 2602.24286): -1, 1, 2 and 3, where faster means by more than 5 %. Here that is a speedup
    (T_baseline / T_kernel) above 1.05. The other reading, 5 % less time, would be a speedup above 1.0526.
    """

    def __init__(self, config: MilestoneConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        config = self._config
        if not turn.correct or turn.evaluation is None:
            return config.failed
        # `turn.speedup` is relative to the compiled reference; the profile has the speedup over eager PyTorch.
        compiled, eager = turn.speedup, turn.evaluation.eager_speedup
        if not _faster(eager, config.margin):
            return config.correct
        return config.faster_than_both if _faster(compiled, config.margin) else config.faster_than_eager


class Coverage(Reward):
    """Share of the device time of a correct kernel that is spent in kernels built from the candidate's source.

    0 for a kernel that is not correct, and where no profile was taken. Source: Dr. Kernel (arXiv 2602.05885), the term
    PR of R = C + C * min(speedup, 3) + C * PR, with C = 1 for a correct kernel and 0 otherwise.
    """

    def __init__(self, config: CoverageConfig) -> None:
        pass

    def score(self, turn: Turn) -> float:
        share = turn.evaluation.own_kernel_share if turn.evaluation is not None else None
        return share if turn.correct and share is not None else 0.0


class CudaL1(Reward):
    """Conservative speedup of a correct kernel: truncated towards 1; a noisy measurement counts as 1 at most.

    Source: CUDA-L1 (arXiv 2507.14111), where the reward is T_reference / T_kernel after this rounding. CUDA-L1 repeats
    a measurement with a large spread. Here the judge has already repeated it within its budget, and the spread is the
    width of the 95 % confidence interval.
    """

    def __init__(self, config: CudaL1Config) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        speedup = turn.speedup
        if speedup is None or turn.evaluation is None:
            return 0.0
        interval = turn.evaluation.speedup_ci
        if interval is not None and interval[1] - interval[0] > self._config.max_spread * speedup:
            speedup = min(speedup, 1.0)
        return _capped(_cut_towards_one(speedup, self._config.digits), self._config.cap)


class Thinking(Reward):
    """1 for thinking of moderate length, less for none or for very long thinking; 0 without code."""

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


class Length(Reward):
    """1 for a short source, decreasing linearly to 0 for a long one; 0 without code."""

    def __init__(self, config: LengthConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        if turn.candidate is None:
            return 0.0
        return 1.0 - _position(len(turn.candidate.source), self._config.full, self._config.none)


class Overlong(Reward):
    """0 for a reply of at most limit - buffer tokens, falling linearly to -1 at the limit, and -1 above it.

    Source: soft overlong punishment of DAPO (arXiv 2503.14476), equation 13: with the length y, the limit L and the
    buffer c, 0 if y <= L - c, (L - c - y) / c if L - c < y <= L, and -1 if y > L. The paper has L = 20,480 and
    c = 4,096.
    """

    def __init__(self, config: OverlongConfig) -> None:
        self._limit, self._buffer = config.limit, config.buffer

    def score(self, turn: Turn) -> float:
        return -_position(len(turn.reply.tokens), self._limit - self._buffer, self._limit)


def _capped(score: float, cap: float | None) -> float:
    return score if cap is None else min(score, cap)


def _faster(speedup: object, margin: float) -> bool:
    return isinstance(speedup, int | float) and speedup > 1.0 + margin


def _cut_towards_one(speedup: float, digits: int) -> float:
    unit = 10**digits
    # Floating-point error: 1.1 * 100 is 110.00000000000001.
    scaled = round(speedup * unit, 6)
    return (math.floor(scaled) if speedup >= 1.0 else min(math.ceil(scaled), unit)) / unit


def _position(value: int, start: int, end: int) -> float:
    """Position of `value` between `start` (0) and `end` (1), clamped to that range."""
    return min(max((value - start) / (end - start), 0.0), 1.0)
