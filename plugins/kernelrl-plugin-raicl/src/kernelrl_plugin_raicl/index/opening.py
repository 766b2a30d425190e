"""Open an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_raicl.index.behaviour import read_behaviour
from kernelrl_plugin_raicl.index.lexical import Lexical
from kernelrl_plugin_raicl.index.manifest import build_command, read_manifest, unusable
from kernelrl_plugin_raicl.index.store import Rows, Store

__all__ = ["Index", "open_index"]


class Index:
    """An index whose files equal those of its manifest. Safe to use in several threads."""

    def __init__(self, directory: Path, manifest: dict[str, Any], sha256: str) -> None:
        self.directory, self.manifest, self.sha256 = directory, manifest, sha256
        try:
            self.store = Store(directory, sorted(manifest["backends"]))
            if len(self.store) != manifest["records"]:
                raise unusable(directory, "the table has another number of records than the manifest")
            self.lexical = Lexical(directory, manifest["lexical"], len(self.store))
            self._dense = manifest["dense"]
            self.behaviour = read_behaviour(directory, manifest)
        except (KeyError, TypeError) as error:
            raise unusable(directory, f"the manifest lacks {error}") from None

    @property
    def has_vectors(self) -> bool:
        """Whether the index was built with an embedder."""
        return self._dense is not None

    def require_vectors(self) -> dict[str, Any]:
        """Facts of the dense index.

        Raises:
            UsageError: the index was built without an embedder.
        """
        if not self.has_vectors:
            raise unusable(self.directory, "was built without --embedder, so it has no vectors", dense=True)
        facts: dict[str, Any] = self._dense
        return facts

    def rows_of(self, backend: str) -> Rows:
        """Rows of a backend.

        Raises:
            UsageError: there are none.
        """
        rows = self.store.rows_of(backend)
        if not len(rows):
            known = ", ".join(f"{name} {count}" for name, count in self.manifest["backends"].items()) or "none"
            command = build_command(self.directory).partition(" --corpora")[0]
            raise UsageError(
                f"index {self.directory} has no kernels for backend {backend!r}; it has: {known}",
                fix=f"set another backend in the recipe, or {command} with a corpus of {backend} kernels",
                see="index",
            )
        return rows


def open_index(directory: Path) -> Index:
    """Open an index after comparing all of its files with the manifest.

    Raises:
        MissingPrerequisite: the directory does not exist.
        UsageError: it is not an index, of another version, or damaged; with the command that builds it.
    """
    return Index(directory, *read_manifest(directory))
