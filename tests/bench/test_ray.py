"""The grid on a Ray cluster of two nodes: the same results as here, whatever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from owttt.bench import running
from owttt.bench.engine import execute
from owttt.bench.ray_engine import execute_on_ray
from owttt.bench.spec import RunSpec
from owttt.cli import main
from owttt.data import StreamSpec

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # nodes on the loopback interface, whatever the system
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'owttt[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes of one core each, on this machine only."""
    os.environ["OWTTT_DATA"] = str(tmp_path_factory.mktemp("root"))
    about = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**about, "include_dashboard": False})
    made.add_node(**about)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()
    del os.environ["OWTTT_DATA"]


@pytest.fixture
def specs(place):
    running.forget()
    stream = StreamSpec(known=f"npz:{place / 'known.npz'}", unknown=(f"npz:{place / 'unknown.npz'}",), batch_size=10)
    base = RunSpec(str(place / "model"), stream)
    return [
        replace(base, method=method, stream=replace(stream, seed=seed)) for method in ("test", "bn") for seed in (0, 1)
    ]


def numbers(done):
    return {one.spec.digest: one.record["metrics"] for one in done}


def files(folder):
    return sorted(path.name for path in folder.glob("*.json"))


def workers():
    """Return the processes that do runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::_task"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_results_are_those_of_the_local_engine(cluster, specs, tmp_path):
    there = list(execute_on_ray(specs, tmp_path / "ray", address=cluster.address))
    assert all(one.fresh and not one.error for one in there), there
    here = list(execute(specs, tmp_path / "local"))
    assert numbers(there) == numbers(here)
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    again = list(execute(specs, tmp_path / "ray"))
    assert not any(one.fresh for one in again), "the local engine finds what Ray did"
    assert not any(one.fresh for one in execute_on_ray(specs, tmp_path / "local", address="127.0.0.1:1")), "nor asks"


def test_a_run_that_fails_is_told_and_the_rest_goes_on(cluster, specs, tmp_path):
    lacking = replace(specs[0], stream=replace(specs[0].stream, unknown=("npz:gone.npz",)))
    wrong = replace(specs[0], options={"speed": 1})
    done = {
        one.spec.digest: one for one in execute_on_ray([lacking, wrong, specs[1]], tmp_path, address=cluster.address)
    }
    assert "gone.npz: no such file" in done[lacking.digest].error
    assert "has no option ['speed']" in done[wrong.digest].error
    assert done[specs[1].digest].record


def test_a_dead_address_is_told_within_seconds(place, tmp_path, capsys):
    began = time.monotonic()
    words = ["bench", "--file", str(table_file(place, tmp_path)), "mine", "--results", str(tmp_path / "r")]
    assert main([*words, "--engine", "ray", "--address", "127.0.0.1:1"]) == 1
    assert time.monotonic() - began < 20
    assert "No Ray cluster answers at 127.0.0.1:1" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--engine", "ray", "--address", "nowhere"]) == 1
    assert main([*words, "--address", "127.0.0.1:1"]) == 1
    assert "goes with --engine ray" in " ".join(capsys.readouterr().err.split())


def test_an_interruption_ends_the_command(cluster, place, tmp_path):
    words = [sys.executable, "-m", "owttt", "bench", "--file", str(table_file(place, tmp_path, 300)), "mine"]
    words += ["--results", str(tmp_path / "r"), "--engine", "ray", "--address", cluster.address]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while not files(tmp_path / "r") and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert time.monotonic() - began < 50
    assert 0 < len(files(tmp_path / "r")) < 300
    for path in (tmp_path / "r").glob("*.json"):
        assert json.loads(path.read_text())["kind"] == "owttt run"


def test_a_worker_and_a_node_that_die_lose_nothing(cluster, specs, tmp_path):
    """One process is killed in the middle of a run, then a whole node; every run is there once in the end."""
    many = [replace(spec, stream=replace(spec.stream, seed=seed)) for spec in specs[2:3] for seed in range(24)]
    node = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()
    done = []
    for one in execute_on_ray(many, tmp_path / "r", address=cluster.address):
        done.append(one)
        if len(done) == 2:
            for victim in workers()[:1]:
                os.kill(victim, signal.SIGKILL)
        if len(done) == 6:
            cluster.remove_node(node, allow_graceful=False)
    assert [one.error for one in done] == [""] * 24
    assert len({one.spec.digest for one in done}) == len(files(tmp_path / "r")) == 24


def table_file(place, folder, seeds=1):
    path = folder / "mine.toml"
    rows = "\n".join(f'[[mine.rows]]\nname = "{n}"\nmethod = "bn"\nseed = {n}' for n in range(seeds))
    path.write_text(
        f'[mine]\ntitle = "mine"\nlabel = "mine"\nmodel = "{place / "model"}"\nknown = "npz:{place / "known.npz"}"\n'
        f'corruptions = []\ncolumns = ["npz:{place / "unknown.npz"}"]\n{rows}\n'
    )
    return path
