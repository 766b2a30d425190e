"""Write an advantage: a pure function from returns to advantages."""

from __future__ import annotations

from kernelrl_core.interfaces.advantages import AdvantageConfig, AdvantageFunction, Returns

__all__ = ["AdvantageConfig", "AdvantageFunction", "Returns"]
