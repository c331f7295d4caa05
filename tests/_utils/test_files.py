"""Files that are written whole or not at all, and noticed when they change."""

import errno
import json
import os
import time

import pytest

from owttt._utils import files
from owttt._utils.files import DamagedFileError, read_json, remove_parts, write_bytes, write_json


def test_json_comes_back_as_it_was(tmp_path):
    content = {"a": [1, 2.5, None, "ä"], "b": {"c": float("nan")}}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == {"a": [1, 2.5, None, "ä"], "b": {"c": None}}
    (tmp_path / "plain.json").write_text('{"mine": 1}')
    assert read_json(tmp_path / "plain.json") == {"mine": 1}, "somebody else's"


def test_changed_json_is_refused_by_name(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"accuracy": 0.5})
    changed = json.loads(path.read_text()) | {"accuracy": 0.9}
    path.write_text(json.dumps(changed))
    with pytest.raises(DamagedFileError, match=r"a\.json: its contents do not match their checksum"):
        read_json(path)
    write_json(path, {"accuracy": 0.5})
    path.write_text(path.read_text().replace('"sha256"', '"rha256"').replace("0.5", "0.9"))
    with pytest.raises(DamagedFileError, match="do not match their checksum"):
        read_json(path)
    for text, said in (("[1]", "no object"), ("{", "not JSON"), ("[" * 100_000, "not JSON")):
        path.write_text(text)
        with pytest.raises(DamagedFileError, match=rf"a\.json: .*{said}"):
            read_json(path)


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_bytes(tmp_path / "a", b"old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device; 3 bytes were to be written.*/a'") as caught:
        write_bytes(tmp_path / "a", b"new")
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "nothing is left behind"
    assert (tmp_path / "a").read_bytes() == b"old"


def test_parts_that_nobody_writes_any_more_are_removed(tmp_path):
    old, young, other = (tmp_path / name for name in ("a.json.0123abcd.part", "b.json.0123abcd.part", "mine.part"))
    for path in (old, young, other):
        path.touch()
    long_ago = time.time() - 2 * 24 * 3600
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    assert remove_parts(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([young.name, other.name])


def test_what_is_written_can_be_read(tmp_path):
    write_json(tmp_path / "a.json", {"a": {9: 1, 10: 2}})
    assert read_json(tmp_path / "a.json") == {"a": {"9": 1, "10": 2}}
    with pytest.raises(ValueError, match="is the name of the checksum"):
        write_json(tmp_path / "a.json", {"sha256": "mine"})


def test_a_part_that_vanishes_meanwhile_stops_nothing(tmp_path, monkeypatch):
    """Another process has put its file in place between a look at the folder and a look at the file."""
    monkeypatch.setattr(type(tmp_path), "glob", lambda self, _: iter([self / "a.json.0123abcd.part"]))
    assert remove_parts(tmp_path) == 0
