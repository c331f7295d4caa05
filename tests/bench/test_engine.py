"""Many runs: done once, found again, told when they fail, shared between processes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from owttt._utils.processes import noticing_interruptions
from owttt.bench import running
from owttt.bench.engine import cost, execute
from owttt.bench.results import Results
from owttt.bench.running import Run
from owttt.bench.spec import RunSpec
from owttt.bench.steps import EXAMPLES, Step, examples, outcome
from owttt.data import StreamSpec


def records(folder):
    """Return the records of a folder that are whole."""
    whole = []
    for path in sorted(folder.glob("*.json")):
        try:
            whole.append(json.loads(path.read_text()))
        except ValueError:
            continue
    return whole


@pytest.fixture
def specs(place, tmp_path, monkeypatch):
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "root"))
    running.forget()
    stream = StreamSpec(known=f"npz:{place / 'known.npz'}", unknown=(f"npz:{place / 'unknown.npz'}",), batch_size=10)
    base = RunSpec(str(place / "model"), stream)
    return [
        replace(base, method=method, stream=replace(stream, seed=seed)) for method in ("test", "bn") for seed in (0, 1)
    ]


def test_what_is_done_is_never_redone(specs, tmp_path, monkeypatch):
    first = list(execute(specs, tmp_path / "r"))
    assert all(done.fresh and done.record["metrics"]["n_known"] == 30 for done in first)
    monkeypatch.setattr(Run, "do", None)
    again = list(execute(specs, tmp_path / "r"))
    assert [done.record for done in again] == [done.record for done in first]
    assert not any(done.fresh for done in again)
    assert len(records(tmp_path / "r")) == 4


def test_other_data_another_model_or_algorithm_is_another_result(specs, place, tmp_path, monkeypatch):
    list(execute(specs[:1], tmp_path / "r"))
    monkeypatch.setattr(running, "ALGORITHM", 99)
    assert next(execute(specs[:1], tmp_path / "r")).fresh
    with np.load(place / "unknown.npz") as file:
        np.savez(tmp_path / "other.npz", x=255 - file["x"], y=file["y"])
    before = Run(specs[0]).fingerprints
    other = replace(specs[0], stream=replace(specs[0].stream, unknown=(f"npz:{tmp_path / 'other.npz'}",)))
    assert Run(other).fingerprints["data"] != before["data"]
    assert Run(other).fingerprints["model"] == before["model"]


def test_a_damaged_record_is_made_anew(specs, tmp_path):
    list(execute(specs[:1], tmp_path / "r"))
    path = Results(tmp_path / "r").path(specs[0])
    path.write_text(path.read_text()[:100])
    assert records(tmp_path / "r") == []
    with pytest.warns(UserWarning, match=f"{path.name}: not JSON .* The run is made again"):
        assert next(execute(specs[:1], tmp_path / "r")).fresh
    path.write_text(path.read_text().replace('"n_known": 30', '"n_known": 31'))
    with pytest.warns(UserWarning, match="do not match their checksum"):
        assert next(execute(specs[:1], tmp_path / "r")).fresh


def test_a_run_that_fails_is_told_and_the_rest_goes_on(specs, tmp_path):
    bad = replace(specs[0], stream=replace(specs[0].stream, unknown=("npz:gone.npz",)))
    wrong = replace(specs[0], options={"speed": 1})
    done = list(execute([bad, wrong, specs[1]], tmp_path / "r"))
    assert "FileNotFoundError: gone.npz: no such file" in done[0].error
    assert "has no option ['speed']" in done[1].error
    assert done[2].record is not None


def test_whatever_a_run_raises_the_rest_goes_on(specs, tmp_path, monkeypatch):
    do = Run.do

    def diverges(self, show):
        if self.spec.method == "bn":
            raise FloatingPointError("it has diverged")
        return do(self, show)

    monkeypatch.setattr(Run, "do", diverges)
    done = list(execute(specs, tmp_path / "r"))
    assert [one.error for one in done] == ["", "", *["FloatingPointError: it has diverged"] * 2]


def test_processes_share_the_work(specs, tmp_path):
    done = list(execute(specs, tmp_path / "r", jobs=2))
    assert {done.spec.method for done in done} == {"test", "bn"}
    alone = {Results(tmp_path).path(d.spec): d.record["metrics"] for d in execute(specs, tmp_path / "alone")}
    assert {Results(tmp_path).path(d.spec): d.record["metrics"] for d in done} == alone


def test_a_process_that_dies_takes_no_other_run_with_it(specs, tmp_path, monkeypatch):
    code = "import os\nfrom owttt.methods import Test\n\nclass Deadly(Test):\n    def forward(self, x): os._exit(9)\n"
    (tmp_path / "deadly.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    deadly = replace(specs[0], method="deadly:Deadly")
    done = list(execute([specs[0], deadly, *specs[1:]], tmp_path / "r", jobs=2))
    assert {one.spec.digest: one.error for one in done} == {
        **{spec.digest: "" for spec in specs},
        deadly.digest: "Its process died; it may have run out of memory.",
    }
    assert len(done) == 5


def test_a_kill_loses_at_most_the_run_under_way(specs, tmp_path):
    (tmp_path / "specs.json").write_text(json.dumps([spec.describe() for spec in specs] * 1))
    code = (
        "import json, sys, pathlib\n"
        "from owttt.bench.engine import execute\nfrom owttt.bench.spec import RunSpec\n"
        "specs = [RunSpec.parse(d) for d in json.loads(pathlib.Path(sys.argv[1]).read_text())]\n"
        "for done in execute(specs, pathlib.Path(sys.argv[2])): assert done.record, done.error\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "specs.json"), str(tmp_path / "r")]
    process = subprocess.Popen(words)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r").glob("*.json")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(records(tmp_path / "r"))
    assert kept >= 1
    done = list(execute(specs, tmp_path / "r"))
    assert sum(not d.fresh for d in done) >= kept
    assert all(d.record for d in done)


def test_source_statistics_are_fitted_once(specs, place, tmp_path):
    spec = replace(specs[0], source=f"npz:{place / 'known.npz'}")
    list(execute([spec, replace(spec, method="bn")], tmp_path / "r"))
    assert len(list((tmp_path / "root" / "statistics").iterdir())) == 1


def test_cost_is_in_forward_passes():
    spec = RunSpec("m", StreamSpec(num_samples=100, ratio=0.5), method="test")
    assert cost(spec) == 150
    assert cost(replace(spec, method="owttt")) == pytest.approx(4.4 * 150)


def test_examples_of_every_verdict_are_spread_over_the_stream():
    random = np.random.default_rng(0)
    done = []
    for _ in range(6):
        labels, predicted = random.integers(-1, 3, 50), random.integers(-1, 3, 50)
        done.append(Step({}, 0.5, random.random(50), predicted, labels, {}, 0.0))
    scores, predicted, labels = (
        np.concatenate([getattr(step, name) for step in done]) for name in ("scores", "predicted", "labels")
    )
    found = examples(done)
    truth = {
        "rejected rightly": lambda p, y: p == y == -1,
        "rejected wrongly": lambda p, y: p == -1 != y,
        "accepted wrongly": lambda p, y: y == -1 != p,
        "classified rightly": lambda p, y: p == y != -1,
        "classified wrongly": lambda p, y: -1 not in (p, y) and p != y,
    }
    assert found.keys() == truth.keys()
    for verdict, some in found.items():
        places = [one["place"] for one in some]
        everything = [n for n in range(300) if truth[verdict](predicted[n], labels[n])]
        assert len(places) == len(set(places)) == EXAMPLES
        assert (places[0], places[-1]) == (everything[0], everything[-1])
        for one in some:
            assert one["place"] in everything
            assert one["score"] == pytest.approx(scores[one["place"]], abs=1e-4)
            assert (one["predicted"], one["label"]) == (predicted[one["place"]], labels[one["place"]])
    few = examples([Step({}, 0.5, np.ones(2), np.array([0, 0]), np.array([0, 1]), {}, 0.0)])
    assert [len(some) for some in few.values()] == [0, 0, 0, 1, 1]


def test_what_a_method_lets_watch_may_come_and_go():
    labels = np.array([0, -1])
    metrics = dict.fromkeys(("acc_s", "acc_n", "acc_h", "acc_closed", "known_rejected"), 0.5)
    done = [Step(metrics, 0.5, np.array([0.1, 0.9]), labels, labels, watch, 0.0) for watch in ({"a": 1.0}, {"b": 2.0})]
    curves = outcome(done)["curves"]
    assert curves["a"][0] == 1.0
    assert np.isnan(curves["a"][1])
    assert curves["b"][1] == 2.0


def test_the_code_of_a_score_of_one_s_own_decides_its_numbers(specs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_score.py").write_text("def mine(out, source):\n    return out.features.norm(dim=1)\n")
    spec = replace(specs[0], score="mine_score:mine")
    assert next(execute([spec], tmp_path / "r")).fresh
    assert not next(execute([spec], tmp_path / "r")).fresh
    (tmp_path / "mine_score.py").write_text("def mine(out, source):\n    return -out.features.norm(dim=1)\n")
    assert next(execute([spec], tmp_path / "r")).fresh, "changed code is another run"
    assert "code" not in Run(specs[0]).fingerprints, "ours are known by the version of the algorithm"


def test_a_lock_that_another_holds_is_named(specs, tmp_path, monkeypatch, capfd):
    lock = Results(tmp_path / "r").lock(specs[0])
    code = (
        "import sys, time, pathlib\nfrom owttt._utils.locks import waiting_for\n"
        "with waiting_for(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setenv("OWTTT_LOCK_TIMEOUT", "0.2")
        done = next(execute(specs[:1], tmp_path / "r"))
        holder.kill()
    assert f"held by process {holder.pid} for more than 0.2 s (OWTTT_LOCK_TIMEOUT)" in done.error
    monkeypatch.delenv("OWTTT_LOCK_TIMEOUT")
    assert next(execute(specs[:1], tmp_path / "r")).record, "a lock ends with its process"


def test_processes_die_with_their_parent(tmp_path):
    code = (
        "import multiprocessing, os, sys, time\nfrom owttt._utils.processes import die_with_parent\n"
        "def child():\n    die_with_parent()\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.get_context('fork').Process(target=child).start()\n    time.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text(code)
    with subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the child is still there")


def test_leaving_stops_the_processes(specs, tmp_path):
    many = [replace(specs[0], stream=replace(specs[0].stream, seed=seed)) for seed in range(60)]
    under_way = execute(many, tmp_path / "r", jobs=2)
    next(under_way)
    under_way.close()
    assert len(records(tmp_path / "r")) < 40, "what was not begun is not run"


CAMPAIGN = """
import json, sys, pathlib
from owttt._utils.processes import noticing_interruptions
from owttt.bench import running
from owttt.bench.engine import execute
from owttt.bench.spec import RunSpec
if __name__ == "__main__":
    specs = [RunSpec.parse(d) for d in json.loads(pathlib.Path(sys.argv[1]).read_text())]
    for done in execute(specs, pathlib.Path(sys.argv[2]), jobs=2):
        print("done", flush=True)
"""


def _words(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes")
def test_an_interruption_ends_two_processes_at_once(specs, tmp_path):
    """Only the parent hears of it, as with `kill -INT`; a terminal tells all of them."""
    many = [replace(spec, stream=replace(spec.stream, seed=seed)) for spec in specs[2:3] for seed in range(400)]
    (tmp_path / "specs.json").write_text(json.dumps([spec.describe() for spec in many]))
    (tmp_path / "campaign.py").write_text(CAMPAIGN)
    words = [sys.executable, str(tmp_path / "campaign.py"), str(tmp_path / "specs.json"), str(tmp_path / "r")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "done\n"
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert sum(b"spawn_main" in _words(pid) for pid in workers) == 2
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        took = time.monotonic() - began
    assert process.returncode != 0
    assert took < 10, "it takes half a second on a quiet machine; runs under way would go on for minutes"
    assert not [pid for pid in workers if b"spawn_main" in _words(pid)]
    assert len(records(tmp_path / "r")) < 400


def test_a_full_disk_ends_a_campaign(specs, tmp_path, monkeypatch):
    def full(self, spec, record):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path(spec)))

    monkeypatch.setattr(Results, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/r/test-"):
        list(execute(specs, tmp_path / "r"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the size of files")
def test_a_limit_on_files_ends_a_campaign_of_processes(specs, tmp_path):
    """No record can be written, by whichever process: the first to notice ends it, and names the file."""
    many = [replace(spec, stream=replace(spec.stream, seed=seed)) for spec in specs[:1] for seed in range(60)]
    (tmp_path / "specs.json").write_text(json.dumps([spec.describe() for spec in many]))
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    (tmp_path / "campaign.py").write_text(limited + CAMPAIGN)
    words = [sys.executable, str(tmp_path / "campaign.py"), str(tmp_path / "specs.json"), str(tmp_path / "r")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "done" not in done.stdout
    assert re.search(r"File too large; [\d,]+ bytes were to be written: '.*/r/test-\w+\.json'", done.stderr), (
        done.stderr
    )
    assert not list((tmp_path / "r").glob("*.part"))


@pytest.fixture
def interruptible():
    """SIGINT raises, also where a shell started the tests in the background, which ignore it then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_that_somebody_swallows_is_noticed():
    swallowed = False
    with noticing_interruptions() as check:
        check()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            swallowed = True
        assert swallowed
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
