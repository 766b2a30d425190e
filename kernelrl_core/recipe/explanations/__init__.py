"""Explanations of names that no class declares: problems of users, and metrics. Their texts are in the TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

__all__ = ["MetricGroup", "Problem", "metric_groups", "problems"]


@attrs.frozen
class Problem:
    """The entry of an error or an alarm. Texts are Markdown; links are relative to the folder `docs`."""

    group: str
    """Part of kernelrl in which it occurs."""
    messages: tuple[str, ...]
    """Messages that lead to it."""
    cause: str
    """Cause of the messages."""
    fix: str
    """Actions that remove the cause."""

    @property
    def text(self) -> str:
        """Messages, cause and fix."""
        quoted = "\n".join(self.messages)
        return f"```text\n{quoted}\n```\n\nCause: {self.cause}\n\nFix: {self.fix}"


@attrs.frozen
class MetricGroup:
    """Metrics of one subject."""

    title: str
    """Heading."""
    before: str
    """Text before the metrics; may be empty."""
    metrics: Mapping[str, str]
    """Name -> meaning. In a name `*` is any text, and `<k>` a number."""
    after: str
    """Text after the metrics; may be empty."""


def problems() -> dict[str, Problem]:
    """Id -> entry, in the order of the file."""
    return {
        name: Problem(one["group"], tuple(one["messages"]), one["cause"], one["fix"])
        for name, one in _read("problems.toml").items()
    }


def metric_groups() -> tuple[MetricGroup, ...]:
    """All groups, in the order of the file."""
    found = _read("metrics.toml")["group"]
    return tuple(
        MetricGroup(one["title"], one.get("before", ""), one["metrics"], one.get("after", "")) for one in found
    )


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
