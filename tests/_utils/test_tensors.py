import os

import pytest
import torch
from safetensors.torch import save_file

from owttt._utils import tensors as tensor_files


def test_round_trip(tmp_path):
    tensors = {"b": torch.arange(6).reshape(2, 3), "a": torch.tensor(1.5), "h": torch.ones(2, dtype=torch.bfloat16)}
    tensor_files.write(tmp_path / "t", tensors, {"kind": "thing", "n": 1})
    read, description = tensor_files.read(tmp_path / "t", "thing")
    assert description == {"kind": "thing", "n": 1}
    assert all(torch.equal(read[name], value) for name, value in tensors.items())


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_every_flipped_byte_and_every_truncation_is_detected(tmp_path):
    path = tmp_path / "t"
    tensor_files.write(path, {"a": torch.arange(5.0)}, {"kind": "thing", "number": 4, "name": "fc"})
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises((ValueError, KeyError)):
            tensor_files.read(path, "thing")
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="truncated or damaged"):
            tensor_files.read(path, "thing")


def test_foreign_files_are_told_apart(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="not one written by owttt"):
        tensor_files.read(tmp_path / "foreign", "thing")
    tensor_files.write(tmp_path / "other", {}, {"kind": "other"})
    with pytest.raises(ValueError, match="holds 'other', expected 'thing'"):
        tensor_files.read(tmp_path / "other", "thing")
    with pytest.raises(FileNotFoundError, match="no such file"):
        tensor_files.read(tmp_path / "missing", "thing")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t"
    tensor_files.write(path, {"a": torch.zeros(2)}, {"kind": "thing"})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        tensor_files.write(path, {"a": torch.ones(2)}, {"kind": "thing"})
    assert torch.equal(tensor_files.read(path, "thing")[0]["a"], torch.zeros(2))
    assert [file.name for file in tmp_path.iterdir()] == ["t"]
