"""The definitions of the metrics, from which `explain` and docs/metrics.md are made."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from kernelrl_core.recipe.explanations import Metric, metric_groups, metric_of

ROOT = Path(__file__).parents[2]
METRICS = [metric for group in metric_groups() for metric in group.metrics]
STATISTICS = {"mean", "std", "min", "max"}


def test_every_metric_is_defined_completely() -> None:
    for metric in METRICS:
        texts = (metric.meaning, metric.formula, metric.unit, metric.good, metric.source)
        assert all(texts), metric.name


def test_every_source_is_a_file_or_a_publication() -> None:
    sources = {metric.source for metric in METRICS} | {group.source for group in metric_groups()}
    files = {source for source in sources if not source.startswith(("arXiv ", "http://", "https://"))}
    assert {source for source in files if not (ROOT / source).is_file()} == set()


def test_no_two_metrics_share_a_name_or_a_meaning() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({metric.meaning for metric in METRICS}) == len(METRICS)


def test_metrics_that_end_with_the_same_word_are_the_same_quantity() -> None:
    """Held-out results have the words of the training metrics, counted over episodes."""
    by_word: dict[str, list[Metric]] = defaultdict(list)
    for metric in METRICS:
        word = metric.name.rpartition("/")[2]
        if word not in STATISTICS and not metric.name.startswith("eval/") and "*" not in word:
            by_word[word].append(metric)
    origins = {word: {metric.like or metric.name for metric in same} for word, same in by_word.items()}
    assert {word: names for word, names in origins.items() if len(names) > 1} == {}


def test_the_most_specific_definition_counts() -> None:
    found = {name: metric.name for name in ("train/kl", "train/mine", "time/mine") if (metric := metric_of(name))}
    assert found == {"train/kl": "train/kl", "train/mine": "train/*", "time/mine": "time/*"}
    assert metric_of("mine") is None
