"""All fixtures of the lab, in the order of the taxonomy."""

from __future__ import annotations

from kernelrl_lab import (
    breakouts,
    clean,
    hidden_sources,
    on_gpu,
    replay,
    time_tricks,
    trial_again,
    trial_machinery,
    trial_times,
    trial_values,
    trial_work,
    work,
    wrong,
)

__all__ = ["FIXTURES"]

FIXTURES = (
    *work.FIXTURES,
    *hidden_sources.FIXTURES,
    *wrong.FIXTURES,
    *replay.FIXTURES,
    *time_tricks.FIXTURES,
    *breakouts.FIXTURES,
    *trial_work.FIXTURES,
    *trial_values.FIXTURES,
    *trial_again.FIXTURES,
    *trial_times.FIXTURES,
    *trial_machinery.FIXTURES,
    *clean.FIXTURES,
    *on_gpu.FIXTURES,
)
