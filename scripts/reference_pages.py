"""Generate the reference pages of `docs/` from the code.

    python scripts/reference_pages.py

A page has a comment at its top that names its source. A test fails while a page differs from its source.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from docpages import commands, components, explanations, findings, kinds, performance, python, recipe_keys, tensorboard
from docpages.markdown import DOCS

from kernelrl_core.plugins.kinds import KINDS_BY_NAME


def generated() -> Mapping[Path, str]:
    """Path -> text of every generated page."""
    plugins = {
        **{kind: kinds.kind_page(kind) for kind in KINDS_BY_NAME},
        "declaring": kinds.declaring_page(),
        "values": kinds.values_page(),
        "testing": kinds.testing_page(),
    }
    reference = {
        "commands": commands.commands_page(),
        "recipe_keys": recipe_keys.recipe_keys_page(),
        "components": components.components_page(),
        "performance": performance.performance_page(),
        "tensorboard": tensorboard.tensorboard_page(),
        "python": python.python_page(plugins),
    }
    return {
        DOCS / "findings.md": findings.findings_page(),
        DOCS / "metrics.md": explanations.metrics_page(),
        DOCS / "troubleshooting.md": explanations.troubleshooting_page(),
        **{DOCS / f"plugins/{name}.md": text for name, text in plugins.items()},
        **{DOCS / f"reference/{name}.md": text for name, text in reference.items()},
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
