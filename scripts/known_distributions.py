"""Generate the table of components and the bundled distributions that provide them.

    python scripts/known_distributions.py

The script calls the hooks of the entry points in `plugins/*/pyproject.toml`. Only the core must be installed.
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
    """The text of the file: `components` has kind -> component name -> distribution, `defaults` has kind -> names of
    the default components.

    Raises:
        ValueError: two distributions provide the same component.
    """
    found: dict[str, dict[str, str]] = {}
    defaults: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        sys.path.insert(0, str(path.parent / "src"))
        for name, module in project.get("entry-points", {}).get(GROUP, {}).items():
            plugin = EntryPoint(name, module, GROUP).load()
            for kind in KINDS:
                for component in getattr(plugin, f"kernelrl_{kind}", list)():
                    owner = found.setdefault(kind, {}).setdefault(component.name, project["name"])
                    if owner != project["name"]:
                        raise ValueError(f"{kind}: {owner} and {project['name']} both provide {component.name!r}")
                    if component.default:
                        defaults.setdefault(kind, []).append(component.name)
    return json.dumps({"components": found, "defaults": defaults}, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
