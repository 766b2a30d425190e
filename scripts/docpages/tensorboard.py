"""The page of TensorBoard's tags, from the tables of the logger."""

from __future__ import annotations

from docpages.markdown import names, note, table, wrapped
from kernelrl_plugin_tensorboard.tags import CHARTS, COUNTS, DISTRIBUTIONS, PATTERNS, TAGS


def tensorboard_page() -> str:
    """The page with every tag of logger `tensorboard`, and the metric of each."""
    tags = [*TAGS.items(), *((metric, tag) for metric, tag in PATTERNS.items())]
    parts = [
        "# Tags of TensorBoard",
        note("kernelrl_plugin_tensorboard.tags"),
        wrapped(
            "The tags of logger `tensorboard` are those of the published systems. `*` is the same text in tag and "
            "metric. A metric without a tag here has its own name as the tag. [Metrics](../metrics.md) defines each."
        ),
        table(
            ("tag", "metric"), ((f"`{tag}`", f"`{metric}`") for metric, tag in sorted(tags, key=lambda pair: pair[1]))
        ),
        "Numbers of samples, computed from a rate of the valid samples:",
        table(("tag", "rate"), ((f"`{tag}`", f"`{rate}`") for rate, tag in COUNTS.items())),
        wrapped(
            "Histograms of the samples of a step, every `histograms_every` steps. A sample without the value is not in "
            "them:"
        ),
        table(("tag", "key in `credits.jsonl`"), ((f"`{tag}`", f"`{key}`") for key, tag in DISTRIBUTIONS.items())),
        'Charts of several lines, on the page "Custom Scalars":',
        table(
            ("chart", "tags, as regular expressions"), ((f"`{chart}`", names(found)) for chart, found in CHARTS.items())
        ),
    ]
    return "\n\n".join(parts) + "\n"
