"""What the README and the examples show is what runs."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import owttt
from tests.world import CLASSES, make_world

ROOT = Path(__file__).parents[1]


def test_the_digits(tmp_path, capsys):
    demo = runpy.run_path(str(ROOT / "examples" / "digits.py"))
    runs = demo["main"](["--epochs", "2", "--batches", "3", "--out", str(tmp_path)])
    assert list(runs) == list(owttt.METHODS)
    assert all(len(run["curves"]["acc_h"]) == 3 for run in runs.values())
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*owttt.METHODS, "Acc_H", "digits.png"))


def test_the_demo_without_data_runs_the_digits(tmp_path, monkeypatch, capsys):
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))

    def get(name, tell):
        raise OSError(f"{name} could not be fetched.")

    monkeypatch.setattr(owttt.data, "get", get)
    monkeypatch.setattr(runpy, "run_path", lambda path: {"main": lambda words: {"digits": words}})
    assert demo["main"](["--out", str(tmp_path)]) == {"digits": ["--seed", "0", "--out", str(tmp_path)]}
    shown = capsys.readouterr().out
    assert "cifar10 could not be fetched" in shown
    assert "the digits run instead" in shown


def test_the_demo_on_real_data(tmp_path, monkeypatch, capsys):
    try:
        owttt.data.load("cifar10"), owttt.data.load("mnist")
    except FileNotFoundError:
        pytest.skip("CIFAR-10 and MNIST are not here; `owttt data get cifar10 mnist` fetches them")
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    runs = demo["main"](["--num-samples", "130", "--out", str(tmp_path)])
    assert list(runs) == list(owttt.METHODS)
    assert (tmp_path / "cifar10.png").stat().st_size > 10_000
    assert len(list((tmp_path / "results").glob("*.json"))) == len(runs)
    assert "Acc_H" in capsys.readouterr().out


def test_several_processes_share_a_stream(tmp_path):
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(ROOT / "examples" / "several_processes.py"), "--epochs", "1", "--batches", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *words, *script],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "rank 0 of 2" in done.stdout
    assert "rank 1 of 2" in done.stdout
    assert (tmp_path / "several_processes.safetensors").exists()


def test_promoting_digits(capsys):
    try:
        owttt.data.load("cifar10"), owttt.data.load("mnist"), owttt.data.load("npz:svhn_test10k.npz")
    except FileNotFoundError:
        pytest.skip("CIFAR-10, MNIST and SVHN are not here; `owttt data get cifar10 mnist` fetches two of them")
    example = runpy.run_path(str(ROOT / "examples" / "promote.py"))
    found = example["main"](
        ["--num-samples", "256", "--model", "cifar10-resnet26", "--unknown", "mnist,npz:svhn_test10k.npz"]
    )
    assert found["before"]["handwritten: digit"] == 0
    assert found["after"]["handwritten: digit"] > found["after"]["house numbers: digit"]
    assert "handwritten" in capsys.readouterr().out


def test_own_method(capsys):
    runpy.run_path(str(ROOT / "examples" / "own_method.py"), run_name="__main__")
    assert "passes all" in capsys.readouterr().out


def test_the_code_in_the_readme(tmp_path, monkeypatch):
    """Every python block, one after the other, in a world where `model`, `loader` and `stream` exist."""
    monkeypatch.chdir(tmp_path)
    world = make_world(dtype=torch.float32)
    names = {"model": world.model, "loader": [(world.x, world.y)], "stream": world.stream, "torch": torch}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        code = re.sub(r"num_classes=10", f"num_classes={CLASSES}", block)
        exec(compile(code, "README.md", "exec"), names)
    assert names["metrics"].compute()["n_known"] > 0
