"""`owttt serve` as a process: what it refuses to start with, a kill, and the example that streams a folder."""

import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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
