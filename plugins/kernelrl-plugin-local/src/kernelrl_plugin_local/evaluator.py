"""The evaluator `local`: judges on this machine."""

from __future__ import annotations

from kernelrl_judge.client.pool import JudgePool
from kernelrl_plugin_local.config import LocalConfig

__all__ = ["LocalEvaluator"]


class LocalEvaluator(JudgePool):
    """Evaluates candidates by the judges of this machine; see `kernelrl_judge.client.pool`."""

    def __init__(self, config: LocalConfig) -> None:
        super().__init__(config.workers, config.gpu_workers, config.build_workers, confine=config.confine_judge)
