"""Write the table of components and the bundled distributions that offer them.

    python scripts/known_distributions.py

The table is read from the entry points of `plugins/*/pyproject.toml`: each module's hooks are called, as the core does.
Nothing needs to be installed beside the core.
"""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

from kernelrl_core.interfaces.hooks import GROUP, KINDS

ROOT = Path(__file__).parents[1]
FILE = ROOT / "kernelrl_core/plugins/known_distributions.json"


def table() -> str:
    """Kind -> name of a component -> distribution, as the text of the file.

    Raises:
        ValueError: two distributions offer one component.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        sys.path.insert(0, str(path.parent / "src"))
        for name, module in project.get("entry-points", {}).get(GROUP, {}).items():
            plugin = EntryPoint(name, module, GROUP).load()
            for kind in KINDS:
                for component in getattr(plugin, f"kernelrl_{kind}", list)():
                    owner = found.setdefault(kind, {}).setdefault(component.name, project["name"])
                    if owner != project["name"]:
                        raise ValueError(f"{kind}: {component.name!r} is offered by {owner} and {project['name']}")
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
