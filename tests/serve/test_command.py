"""`owttt serve` as a process: what it refuses to start with, a kill, and the example that streams a folder."""

import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from owttt import SourceStats, models
from owttt._utils.locks import alone
from owttt.cli import main
from owttt.cli.serve import token_of
from owttt.client import Client
from tests.serve.conftest import array, pictures

ROOT = Path(__file__).parents[2]


def test_what_is_not_safe_is_not_served(place, tmp_path, capsys):
    short = tmp_path / "token"
    short.write_text("short")
    words = ["serve", "--model", str(place / "model"), "--state", str(tmp_path / "state")]
    assert main([*words, "--host", "0.0.0.0"]) == 1
    assert "give a token with --token-file" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--token-file", str(short)]) == 1
    assert "at least 16 characters" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--batch", "0"]) == 1
    assert token_of(None, "127.0.0.1") is token_of(None, "localhost") is token_of(None, "::1") is None
    assert "NO TOKEN" in capsys.readouterr().err


def test_a_state_and_a_port_belong_to_one_service(place, tmp_path, capsys):
    words = ["serve", "--model", str(place / "model"), "--state", str(tmp_path / "state")]
    with alone(tmp_path / "state"):
        assert main(words) == 1
    assert f"in use by process {os.getpid()}" in " ".join(capsys.readouterr().err.split())
    with socket.create_server(("127.0.0.1", 0)) as busy:
        assert main([*words, "--port", str(busy.getsockname()[1])]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "cannot be served: Address already in use" in told
    assert "serves" not in told
    with pytest.raises(SystemExit):
        main([*words, "--port", "70000"])
    assert "from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["own_parts:shapes", "statistics.safetensors"])
def test_a_network_of_ones_own_is_served(source, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path))
    if source.endswith(".safetensors"):
        own = runpy.run_path(str(ROOT / "examples" / "own_parts.py"))
        x, y = own["shapes"]("train")
        images = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
        model = models.load("own_parts:network", classes=("0", "1", "2"))
        SourceStats.fit(model, [(images, torch.from_numpy(y))], 3, progress=False).save(tmp_path / source)
    served = []
    monkeypatch.setattr("owttt.cli.serve._run", lambda uvicorn, app, streams, door, chosen: served.append(streams))
    words = ["serve", "--model", "own_parts:network", "--source", source, "--state", "state", "--port", "0"]
    assert main(words) == 0, capsys.readouterr().err
    assert main([*words, "--classes", "standing,lying,square"]) == 0
    assert [streams.model.names for streams in served] == [("0", "1", "2"), ("standing", "lying", "square")]


def start(place, state, *extra):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--model", str(place / "model"), "--state", str(state), "--port", str(port), *extra]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "owttt", *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    client = Client(f"http://127.0.0.1:{port}", timeout=30)
    for _ in range(1800):
        try:
            client.streams()
            return process, client
        except OSError:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
    raise AssertionError("the service did not start")


def test_a_kill_loses_only_what_came_after_the_last_snapshot(place, tmp_path):
    process, client = start(place, tmp_path / "state", "--snapshot-every", "3")
    for seed in range(8):
        client.predict("s", array(4, seed))
    while client.stats("s")["generation"] < 8:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process, client = start(place, tmp_path / "state", "--snapshot-every", "3")
    try:
        assert client.stats("s")["resumed_from"] == 6
        assert len(client.predict("s", array(4))) == 4
    finally:
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=60)[1]
    assert "resumed after batch 6" in told
    assert process.returncode in (0, -signal.SIGTERM)


def test_a_folder_through_a_service(serving, tmp_path, capsys):
    for number, name in enumerate(("red", "green", "stranger")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place, content in enumerate(pictures(5, seed=number)):
            (tmp_path / "photos" / name / f"{place}.png").write_bytes(content)
    token = tmp_path / "token"
    example = runpy.run_path(str(ROOT / "examples" / "serve_folder.py"))
    with serving() as client:
        token.write_text(client.token)
        words = [str(tmp_path / "photos"), "--url", client.url, "--token-file", str(token), "--known", "red,green"]
        found = example["main"](words)
        assert client.stats("folder")["samples"] == 15
    assert set(found) == {"Acc_S", "Acc_N"}
    assert all(0 <= value <= 1 for value in found.values())
    assert "15 pictures" in capsys.readouterr().out
