"""The public API: everything that a plugin imports, re-exported. The core itself never imports it.

| module | what it exports |
|---|---|
| `kernelrl_core.api` | `Component`, `Requires`, `hookimpl`: all that a plugin's entry point needs |
| `api.rewards`, … | one module per kind: base classes, and the values they work with |
| `api.config` | base class of options, number ranges, GPU vendors, YAML, cache directory, atomic files, locks |
| `api.errors` | errors that a plugin raises |
| `api.sources` | analysis of Python sources |
| `api.components` | components that use other components |
| `api.episodes` | episodes driven by another program |

The kinds are `advantages`, `backends`, `checkers`, `evaluators`, `feedback`, `loggers`, `policies`, `retrievers`,
`rewards` and `tasks`. Everything else in `kernelrl_core` is private and may move. Importing any of these modules but
`components` and `episodes` loads only types, interfaces, sources and errors.
"""

from __future__ import annotations

from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import hookimpl
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.version import API_VERSION, __version__

__all__ = ["API_VERSION", "Component", "Requires", "__version__", "hookimpl"]
