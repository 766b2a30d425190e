"""The journal of a server: accepted evaluations with their results, and open episodes, in one SQLite file.

A row is written before its request is accepted, so accepted work survives the end of the process at any moment. One
thread owns the connection. SQLite's write-ahead log survives the end of a process without a sync to disk; a power
failure may lose the last moments.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kernelrl_core.api.errors import StorageError, UsageError

__all__ = ["EpisodeRow", "Journal", "Stored", "Unfinished"]

T = TypeVar("T")

_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS evaluations (
    id TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    response BLOB,
    final INTEGER NOT NULL DEFAULT 0,
    changed REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS evaluations_changed ON evaluations (changed);
CREATE TABLE IF NOT EXISTS submissions (
    id TEXT NOT NULL REFERENCES evaluations (id) ON DELETE CASCADE,
    client TEXT NOT NULL,
    PRIMARY KEY (id, client)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS episodes (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    settings BLOB NOT NULL,
    changed REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS episodes_client ON episodes (client);
CREATE TABLE IF NOT EXISTS turns (
    episode TEXT NOT NULL REFERENCES episodes (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    turn BLOB NOT NULL,
    PRIMARY KEY (episode, number)
) WITHOUT ROWID;
"""


@attrs.frozen
class Stored:
    """A finished evaluation."""

    response: bytes
    """JSON of `serve_request`."""
    final: bool
    """False: an equal request is evaluated again, as after an error or on a busy machine."""


@attrs.frozen
class Unfinished:
    """An accepted evaluation without a result."""

    id: str
    request: bytes
    """JSON of the request."""
    clients: tuple[str, ...]
    """Names of the clients that wait for it."""


@attrs.frozen
class EpisodeRow:
    """An open episode."""

    client: str
    settings: bytes
    """JSON of everything that makes its runner."""
    turns: tuple[bytes, ...]
    """JSON of the finished turns, in order."""


class Journal:
    """Rows of one server. The methods may be called concurrently.

    Args:
        path: of the file.
        max_evaluations: above this number, the finished evaluations that changed first are removed.
        episode_s: seconds after its last turn at which an episode is removed.

    Raises:
        UsageError: the file is damaged, or another version wrote it.
        StorageError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, max_evaluations: int, episode_s: float) -> None:
        self._max_evaluations, self._episode_s = max_evaluations, episode_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kernelrl-journal")
        try:
            self._connection = self._thread.submit(_connect, path).result()
        except sqlite3.DatabaseError as error:
            self._thread.shutdown()
            if isinstance(error, sqlite3.OperationalError):
                raise StorageError(f"{path}: the journal cannot be opened: {error}", see="service-start") from error
            raise UsageError(
                f"{path}: not a journal of this version: {error}",
                fix="choose another --state, or move the file away",
                see="service-start",
            ) from error

    async def accept(
        self, requests: Mapping[str, bytes], joined: Sequence[str], client: str, free: int
    ) -> dict[str, Stored | None] | None:
        """The final results among these requests; the others are accepted, all or none.

        Args:
            requests: id -> JSON of the request. A stored result that is not final is removed.
            joined: ids of evaluations in progress that the client submits, too.
            free: largest number of evaluations that may be accepted.

        Returns:
            Id -> the final result, or None for an accepted one. None instead where more than `free` requests have no
            result; nothing was written then.

        Raises:
            StorageError: nothing was written.
        """
        return await self._run(self._accept, requests, joined, client, free)

    def _accept(
        self, requests: Mapping[str, bytes], joined: Sequence[str], client: str, free: int
    ) -> dict[str, Stored | None] | None:
        found: dict[str, Stored | None] = {}
        submitted = list(joined)
        for id_ in requests:
            row = self._connection.execute(
                "SELECT e.response, e.final, s.client FROM evaluations e "
                "LEFT JOIN submissions s ON s.id = e.id AND s.client = ? WHERE e.id = ?",
                (client, id_),
            ).fetchone()
            response, final, known_client = row or (None, 0, None)
            found[id_] = Stored(response, True) if response is not None and final else None
            if known_client is None:
                submitted.append(id_)
        new = [id_ for id_, stored in found.items() if stored is None]
        if len(new) > free:
            return None
        if new or submitted:
            self._write_accepted({id_: requests[id_] for id_ in new}, submitted, client)
        return found

    def _write_accepted(self, new: Mapping[str, bytes], submitted: Sequence[str], client: str) -> None:
        now = time.time()
        with self._connection:
            self._connection.executemany(
                "INSERT INTO evaluations (id, request, changed) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET response = NULL, final = 0, changed = excluded.changed",
                [(id_, request, now) for id_, request in new.items()],
            )
            self._connection.executemany(
                "INSERT OR IGNORE INTO submissions (id, client) VALUES (?, ?)", [(id_, client) for id_ in submitted]
            )

    async def finish(self, id_: str, response: bytes, *, final: bool) -> None:
        """Store the result of an evaluation.

        Raises:
            StorageError: it was not written.
        """
        await self._run(self._finish, id_, response, final)

    def _finish(self, id_: str, response: bytes, final: bool) -> None:
        with self._connection:
            self._connection.execute(
                "UPDATE evaluations SET response = ?, final = ?, changed = ? WHERE id = ?",
                (response, int(final), time.time(), id_),
            )

    async def cancel(self, id_: str) -> None:
        """Remove an evaluation that has no result.

        Raises:
            StorageError: it was not written.
        """
        await self._run(self._write, "DELETE FROM evaluations WHERE id = ? AND response IS NULL", (id_,))

    async def find(self, id_: str, client: str) -> Stored | None:
        """The result of an evaluation that a client submitted; None if there is none.

        Raises:
            StorageError: the file cannot be read.
        """
        rows = await self._run(
            self._read,
            "SELECT e.response, e.final FROM evaluations e JOIN submissions s ON s.id = e.id "
            "WHERE e.id = ? AND s.client = ? AND e.response IS NOT NULL",
            (id_, client),
        )
        return Stored(rows[0][0], bool(rows[0][1])) if rows else None

    async def unfinished(self) -> list[Unfinished]:
        """All accepted evaluations without a result, in the order of their acceptance.

        Raises:
            StorageError: the file cannot be read.
        """
        rows = await self._run(
            self._read,
            "SELECT e.id, e.request, s.client FROM evaluations e JOIN submissions s ON s.id = e.id "
            "WHERE e.response IS NULL ORDER BY e.changed, e.id",
            (),
        )
        requests = {id_: request for id_, request, _ in rows}
        clients: dict[str, list[str]] = {id_: [] for id_ in requests}
        for id_, _, client in rows:
            clients[id_].append(client)
        return [Unfinished(id_, request, tuple(clients[id_])) for id_, request in requests.items()]

    async def sweep(self) -> None:
        """Remove old results and episodes.

        Raises:
            StorageError: they were not removed.
        """
        await self._run(self._sweep)

    def _sweep(self) -> None:
        with self._connection:
            self._connection.execute(
                "DELETE FROM evaluations WHERE response IS NOT NULL AND id IN "
                "(SELECT id FROM evaluations WHERE response IS NOT NULL ORDER BY changed DESC LIMIT -1 OFFSET ?)",
                (self._max_evaluations,),
            )
            self._connection.execute("DELETE FROM episodes WHERE changed < ?", (time.time() - self._episode_s,))

    # --- episodes ---------------------------------------------------------------------------------------------------

    async def open_episode(self, id_: str, client: str, settings: bytes) -> None:
        """Store a new episode.

        Raises:
            StorageError: it was not written.
        """
        await self._run(self._write, "INSERT INTO episodes VALUES (?, ?, ?, ?)", (id_, client, settings, time.time()))

    async def add_turn(self, episode: str, number: int, turn: bytes) -> None:
        """Store a finished turn of an episode.

        Raises:
            StorageError: it was not written.
        """
        await self._run(self._add_turn, episode, number, turn)

    def _add_turn(self, episode: str, number: int, turn: bytes) -> None:
        with self._connection:
            self._connection.execute("INSERT INTO turns VALUES (?, ?, ?)", (episode, number, turn))
            self._connection.execute("UPDATE episodes SET changed = ? WHERE id = ?", (time.time(), episode))

    async def episode(self, id_: str) -> EpisodeRow | None:
        """An episode with its turns; None if there is none.

        Raises:
            StorageError: the file cannot be read.
        """
        found = await self._run(self._read, "SELECT client, settings FROM episodes WHERE id = ?", (id_,))
        if not found:
            return None
        turns = await self._run(self._read, "SELECT turn FROM turns WHERE episode = ? ORDER BY number", (id_,))
        return EpisodeRow(found[0][0], found[0][1], tuple(turn for (turn,) in turns))

    async def close_episode(self, id_: str) -> None:
        """Remove an episode.

        Raises:
            StorageError: it was not removed.
        """
        await self._run(self._write, "DELETE FROM episodes WHERE id = ?", (id_,))

    async def open_episodes(self, client: str) -> int:
        """Number of episodes of a client.

        Raises:
            StorageError: the file cannot be read.
        """
        rows = await self._run(self._read, "SELECT COUNT(*) FROM episodes WHERE client = ?", (client,))
        return int(rows[0][0])

    # --- connection -------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the file. May be called twice."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """As `aclose`; blocks."""
        try:
            self._thread.submit(self._connection.close).result()
        except RuntimeError:  # closed before
            return
        self._thread.shutdown()

    def _write(self, statement: str, values: Sequence[Any]) -> None:
        with self._connection:
            self._connection.execute(statement, values)

    def _read(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    async def _run(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments, **named))
        except sqlite3.Error as error:
            raise StorageError(f"the journal cannot be read or written: {error}", see="service-start") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, timeout=30.0)
    try:
        path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"its format is {found}, this version has {_FORMAT}")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection
