"""Version of kernelrl and of its plugin API."""

__all__ = ["API_VERSION", "__version__"]

__version__ = "0.1.0"
"""Version of the core and of every bundled plugin."""

API_VERSION = "0.1"
"""Plugins pin `kernelrl>=0.1,<0.2`: a new minor version may rename or remove parts of the API."""
