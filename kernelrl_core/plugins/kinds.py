"""Kinds of components: base classes of implementations and options, imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["KINDS_BY_NAME", "Kind", "public_methods"]


@attrs.frozen
class Kind:
    """One kind of component."""

    singular: str
    """Name of one component in messages."""
    module: str
    """Module that defines the base classes."""
    base_name: str
    """Base class of implementations; empty: a plain callable."""
    config_name: str
    """Base class of options."""

    @property
    def base(self) -> type[Any] | None:
        """Base class of implementations; None: a plain callable."""
        found: type[Any] | None = getattr(importlib.import_module(self.module), self.base_name, None)
        return found

    @property
    def config(self) -> type[ComponentConfig]:
        """Base class of options."""
        found: type[ComponentConfig] = getattr(importlib.import_module(self.module), self.config_name)
        return found

    @property
    def api(self) -> str:
        """Module from which a plugin imports the base classes."""
        return self.module.replace("interfaces", "api")


def _kind(hook: str, singular: str, base: str, config: str) -> tuple[str, Kind]:
    return hook, Kind(singular, f"kernelrl_core.interfaces.{hook}", base, config)


KINDS_BY_NAME: Mapping[str, Kind] = dict(
    (
        _kind("backends", "backend", "Backend", "BackendConfig"),
        _kind("evaluators", "evaluator", "Evaluator", "EvaluatorConfig"),
        _kind("tasks", "task source", "TaskSource", "TaskConfig"),
        _kind("retrievers", "retriever", "Retriever", "RetrieverConfig"),
        _kind("rewards", "reward", "Reward", "RewardConfig"),
        _kind("checkers", "checker", "Checker", "CheckerConfig"),
        _kind("feedback", "feedback formatter", "Feedback", "FeedbackConfig"),
        _kind("policies", "policy", "Policy", "PolicyConfig"),
        _kind("advantages", "advantage", "", "AdvantageConfig"),
        _kind("loggers", "logger", "Logger", "LoggerConfig"),
        _kind("commands", "command", "", "ComponentConfig"),
    )
)
"""Name of the hook without `kernelrl_` -> kind."""


def public_methods(cls: type[Any]) -> frozenset[str]:
    """Names of the public methods of a class and its bases."""
    return frozenset(
        name
        for owner in cls.__mro__
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(value)
    )
