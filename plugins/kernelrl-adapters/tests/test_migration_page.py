"""docs/migration.md has only metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

from kernelrl_core.api.components import Registry
from kernelrl_testing.core import explain

PAGE = (Path(__file__).parents[3] / "docs/migration.md").read_text(encoding="utf-8")


def test_metrics_of_this_system_exist() -> None:
    table = PAGE.split("## Metrics", 1)[1].split("## Files", 1)[0]
    cells = re.findall(r"^\|[^|]*\|([^|]*)\|$", table, flags=re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`([\w@<>*]+/[\w@<>*/]+)`", cell)}
    assert len(names) > 12
    for name in names:
        assert "metric" in {one.what for one in explain(name, Registry(()))}
