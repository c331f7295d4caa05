"""Fetching a data set: sources in order, everything verified, put in place whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from owttt._utils.locks import waiting_for
from owttt.data.catalog import Entry, Source, data_root
from owttt.data.fetching.download import md5
from owttt.data.registry import find


def get(name: str, *, root: str | Path | None = None, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Fetch a data set from the first source that gives the right files, and return the data root.

    What is there and right is not fetched again. `tell` hears what happens.
    """
    entry = find(name)
    place = data_root() if root is None else Path(root)
    if not entry.missing(place) and not entry.damaged(place):
        sure = all(entry.files.values())
        tell(f"{name}: already there{' and as published' if sure else ' (not all of it has a published checksum)'}.")
        return place
    if not entry.sources:
        raise OSError(f"{name} cannot be fetched. {entry.instructions(place)}")
    (place / ".work").mkdir(parents=True, exist_ok=True)
    with waiting_for(place / ".work" / f"{name}.lock"):
        return _get(entry, place, tell)


def _get(entry: Entry, place: Path, tell: Callable[[str], None]) -> Path:
    """Try the sources in order."""
    for file in () if entry.missing(place) else entry.damaged(place)[:1]:
        tell(f"{entry.name}: {file} is damaged; fetching it again.")
    reasons = []
    for source in entry.sources:
        tell(f"{entry.name}: from {source} …")
        try:
            _fetch(entry, source, place)
        except OSError as error:
            reasons.append(str(error))
            tell(f"  {reasons[-1]}")
            continue
        tell(f"{entry.name}: complete, in {place}.")
        if source.unverified:
            tell(
                f"UNVERIFIED: no checksum is published for {', '.join(source.unverified)}; it is as the server sent it."
            )
        return place
    tried = "".join(f"\n  {reason}" for reason in reasons)
    raise OSError(f"{entry.name} could not be fetched.{tried}\n{entry.instructions(place)}")


def _fetch(entry: Entry, source: Source, place: Path) -> None:
    """Let the source write into a folder of its own, verify, and move what came into place."""
    downloads, target = place / ".work" / entry.name, place / ".work" / f"{entry.name}.staging"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    try:
        source.fetch(target, downloads)
        missing, damaged = entry.missing(target), entry.damaged(target)
        if missing:
            raise OSError(f"{source}: what came lacks {missing[0].relative_to(target)}")
        if damaged:
            name = damaged[0].relative_to(target)
            raise OSError(f"{source}: {name} is not the published file (MD5 {md5(damaged[0])})")
        for item in sorted(target.iterdir()):
            _merge(item, place / item.name)
        shutil.rmtree(downloads, ignore_errors=True)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _merge(item: Path, place: Path) -> None:
    """Move a file or folder into place, file by file where the folder is there already: nothing else is touched."""
    if not (item.is_dir() and place.is_dir()):
        shutil.move(item, place)
        return
    for child in sorted(item.iterdir()):
        _merge(child, place / child.name)
