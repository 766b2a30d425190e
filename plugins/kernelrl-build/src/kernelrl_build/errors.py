"""Exceptions of this library. Imports nothing, so that processes of untrusted code can use it."""

from __future__ import annotations

__all__ = ["BadBuildRequest", "BuildCrashed", "BuildError", "BuildUnavailable"]


class BuildError(RuntimeError):
    """An extension does not build or load. The text is the compiler's diagnosis."""


class BadBuildRequest(ValueError):
    """A request for a build that `inline.request` would not have made."""


class BuildUnavailable(Exception):
    """This machine lacks a part that builds need. The arguments are the missing part and the fix."""


class BuildCrashed(Exception):
    """The build process failed, and it fails for an empty source as well."""
