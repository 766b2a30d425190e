"""The core of kernelrl. Plugins and programs import `kernelrl_core.api`; everything else may move."""

from kernelrl_core.version import __version__

__all__ = ["__version__"]
