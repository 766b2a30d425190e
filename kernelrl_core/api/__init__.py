"""The public API: all names that plugins may import. The core itself never imports it.

| module | exports |
|---|---|
| `kernelrl_core.api` | `Component`, `Requires`, `hookimpl`: the names for a plugin's entry point |
| `api.rewards`, … | one module per kind: base classes, and the values that they work with |
| `api.config` | base class of options, number ranges, GPU vendors, YAML, cache directory, atomic files, locks |
| `api.errors` | errors that a plugin raises |
| `api.sources` | analysis of Python sources |
| `api.components` | components that use other components |
| `api.episodes` | episodes driven by another program |
| `api.runs` | the runs on disk |
| `api.results` | results of runs and held-out evaluations |
| `api.recipes` | recipes that a program makes |
| `api.monitoring` | progress, alarms and time of a run |
| `api.commands` | tables, JSON and output files of commands |

The kinds are `advantages`, `backends`, `checkers`, `evaluators`, `feedback`, `loggers`, `policies`, `retrievers`,
`rewards` and `tasks`. Everything else in `kernelrl_core` is private and may move. `commands`, `components`, `episodes`,
`monitoring`, `recipes`, `results` and `runs` load more of the core; the other modules load only types, interfaces,
sources, storage and errors.
"""

from __future__ import annotations

from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import hookimpl
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.version import API_VERSION, __version__

__all__ = ["API_VERSION", "Component", "Requires", "__version__", "hookimpl"]
