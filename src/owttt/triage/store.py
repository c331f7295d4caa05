"""Rejected samples on disk, bounded: an SQLite file, which any tool opens and no kill tears.

When the store is full, one of the two most alike among some chosen at random leaves: looks that are rare stay.
"""

from __future__ import annotations

import io
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rejects (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, generation INTEGER NOT NULL, score REAL NOT NULL, threshold REAL,
    best TEXT NOT NULL, accepted INTEGER NOT NULL, features BLOB NOT NULL, sample BLOB NOT NULL, png BLOB
)"""
LIGHT: Final = (
    "SELECT id, time, generation, score, threshold, best, accepted, features, NULL, png FROM rejects ORDER BY id"
)
COMPARED: Final = 64
"""Samples among which the two most alike are looked for."""


@final
@dataclass(frozen=True)
class Reject:
    """A sample that was rejected, or doubtful, and what was known of it then."""

    score: float
    threshold: float | None
    best: str
    """The known class it would have got."""
    features: NDArray[np.float32]
    sample: NDArray[np.generic]
    """As the model took it: an image `(3, H, W)` in 0 … 1, or a cloud `(P, 3)`."""
    png: bytes | None = None
    generation: int = 0
    accepted: bool = False
    """Whether it was accepted, and only kept because that was doubtful."""
    time: float = 0.0
    id: int = 0


@final
class Store:
    """A bounded store of rejects. Several threads may use it, and several processes read it."""

    def __init__(self, path: Path, capacity: int = 2000, *, seed: int = 0) -> None:
        if capacity < 1:
            raise ValueError(f"A store needs room for at least one sample, got {capacity}.")
        self.path = path
        self.capacity = capacity
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=10)
            self._connection.execute("PRAGMA journal_mode=TRUNCATE")  # WAL does not work in folders that nodes share
            self._connection.execute(SCHEMA)
            self._connection.commit()
            self._number = self._count(self._connection)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path}: not a store of rejects, or damaged ({error}).") from error

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open a store that is there."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no store of rejects is here.")
        return cls(path)

    def add(self, rejects: Sequence[Reject]) -> None:
        """Keep samples; beyond the capacity others leave."""
        rows = [
            (
                one.time or time.time(), one.generation, one.score, one.threshold, one.best, int(one.accepted),
                one.features.astype(np.float32).tobytes(), _packed(one.sample), one.png,
            )
            for one in rejects
        ]  # fmt: skip
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO rejects (time, generation, score, threshold, best, accepted, features, sample, png) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            for _ in range(self._count(connection) - self.capacity):
                connection.execute("DELETE FROM rejects WHERE id = ?", (self._superfluous(connection),))
            self._number = self._count(connection)

    def __len__(self) -> int:
        return self._number

    def all(self, *, samples: bool = True) -> list[Reject]:
        """Return everything, in the order in which it came; without the samples themselves if they are not needed."""
        return self._select("SELECT * FROM rejects ORDER BY id" if samples else LIGHT, ())

    def get(self, ids: Sequence[int]) -> list[Reject]:
        """Return some, by their ids."""
        marks = ", ".join("?" for _ in ids)
        return self._select(f"SELECT * FROM rejects WHERE id IN ({marks}) ORDER BY id", tuple(ids))

    def last(self, number: int) -> list[Reject]:
        """Return the last ones, newest first."""
        return self._select("SELECT * FROM rejects ORDER BY id DESC LIMIT ?", (number,))

    def clear(self) -> None:
        """Forget everything."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM rejects")
            self._number = 0

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def _superfluous(self, connection: sqlite3.Connection) -> int:
        """Return the id of one of the two most alike among some, the older one."""
        ids = [row[0] for row in connection.execute("SELECT id FROM rejects")]
        chosen = sorted(self._random.choice(ids, min(COMPARED, len(ids)), replace=False).tolist())
        marks = ", ".join("?" for _ in chosen)
        rows = connection.execute(f"SELECT features FROM rejects WHERE id IN ({marks}) ORDER BY id", chosen).fetchall()
        features = np.stack([np.frombuffer(row[0], np.float32) for row in rows])
        unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
        alike = unit @ unit.T
        np.fill_diagonal(alike, -np.inf)
        return int(chosen[min(divmod(int(alike.argmax()), len(chosen)))])

    def _select(self, query: str, values: tuple[int, ...]) -> list[Reject]:
        with self._lock:
            rows = self._connection.execute(query, values).fetchall()
        return [
            Reject(
                score, threshold, best, np.frombuffer(features, np.float32), _unpacked(sample), png, generation,
                bool(accepted), when, number,
            )
            for number, when, generation, score, threshold, best, accepted, features, sample, png in rows
        ]  # fmt: skip

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection

    @staticmethod
    def _count(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT COUNT(*) FROM rejects").fetchone()[0])


def _packed(sample: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, sample, allow_pickle=False)
    return file.getvalue()


def _unpacked(content: bytes | None) -> NDArray[np.generic]:
    if content is None:
        return np.empty(0, np.float16)
    found: NDArray[np.generic] = np.load(io.BytesIO(content), allow_pickle=False)
    return found
