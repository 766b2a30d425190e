"""Explanations of names that no class declares: problems of users, metrics, and names of other
systems. Their texts are in the TOML files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Metric", "MetricGroup", "Problem", "metric_groups", "metric_of", "problems", "synonyms"]


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
class Metric:
    """Definition of a metric."""

    name: str
    """In a name `*` is any text, and `<k>` a number."""
    meaning: str
    """The measured quantity."""
    formula: str
    """Its computation, in the symbols of `docs/metrics.md`; it names the estimator."""
    unit: str
    """Unit of the value."""
    good: str
    """Good range, or the good direction over a run; `any` for a metric that only describes the step."""
    source: str
    """File of this repository that computes it, or publication of its formula."""
    like: str = ""
    """Metric with the same formula over other samples, or under another name; may be empty."""


@attrs.frozen
class MetricGroup:
    """Metrics of one subject."""

    title: str
    """Heading."""
    source: str
    """Source of the metrics that state no other."""
    before: str
    """Text before the metrics; may be empty."""
    metrics: tuple[Metric, ...]
    outputs: Mapping[str, str]
    """Name -> meaning of results that are no metrics."""
    after: str
    """Text after the metrics; may be empty."""


def problems() -> dict[str, Problem]:
    """Id -> entry, in the order of the file."""
    return {
        name: Problem(one["group"], tuple(one["messages"]), one["cause"], one["fix"])
        for name, one in _read("problems.toml").items()
    }


def synonyms() -> dict[str, str]:
    """Name in another system -> the key or component that it means."""
    return {name: key for key, names in _read("synonyms.toml").items() for name in names}


@cache
def metric_groups() -> tuple[MetricGroup, ...]:
    """All groups, in the order of the file."""
    groups = _read("metrics.toml")["group"]
    fields = {
        name: {"source": group["source"], **given}
        for group in groups
        for name, given in group.get("metrics", {}).items()
    }
    return tuple(
        MetricGroup(
            group["title"],
            group["source"],
            group.get("before", ""),
            tuple(_metric(name, fields) for name in group.get("metrics", {})),
            group.get("outputs", {}),
            group.get("after", ""),
        )
        for group in groups
    )


def _metric(name: str, fields: Mapping[str, Mapping[str, str]]) -> Metric:
    own = fields[name]
    definition = {**own, **fields[own["like"]]} if "like" in own else own
    return Metric(**{**definition, "name": name, "meaning": own["meaning"]})


def metric_of(name: str) -> Metric | None:
    """The definition of a metric, given its full name in `metrics.jsonl`; of several patterns that match the most
    specific one. A result before the first step, or of a level, has the definition of the whole split. None: the name
    has no definition."""
    name = re.sub(r"^eval(_start)?/(level_\d+/)?", "eval/", name)
    matching = [
        metric for group in metric_groups() for metric in group.metrics if _pattern(metric.name).fullmatch(name)
    ]
    return max(matching, key=lambda metric: len(re.sub(_PLACEHOLDER, "", metric.name)), default=None)


_PLACEHOLDER = r"\*|<\w+>"


@cache
def _pattern(name: str) -> re.Pattern[str]:
    parts = re.split(f"({_PLACEHOLDER})", name)
    return re.compile("".join(_part(part) for part in parts))


def _part(part: str) -> str:
    if part == "*":
        return ".+"
    return r"[\d.]+" if part.startswith("<") else re.escape(part)


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
