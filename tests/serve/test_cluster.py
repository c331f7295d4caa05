"""Streams on a Ray cluster of two nodes: one actor each, started again from its last snapshot when it dies."""

import os
import signal
import sys
import time
from functools import partial

import pytest
import torch

from owttt import wrap
from owttt.client import ServiceError
from tests.serve.conftest import array

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # nodes on the loopback interface, whatever the system
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'owttt[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

from owttt.serve.cluster import on_cluster  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills processes by number"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each, on this machine only."""
    about = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**about, "include_dashboard": False})
    made.add_node(**about)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def opener(cluster, model):
    return on_cluster(ray, partial(wrap, model, source=model.source, classes=model.names), cpus=1)


def again(ask, patience=60):
    """Ask until there is an answer that is no 503."""
    end = time.monotonic() + patience
    while True:
        try:
            return ask()
        except ServiceError as error:
            if error.status != 503 or time.monotonic() > end:
                raise
            time.sleep(0.2)


def test_streams_of_two_nodes(serving, opener, model):
    """Answers are those of an adapter; two streams are on two nodes, and a dead one comes back."""
    x = array(10)
    expected = wrap(model, source=model.source, classes=model.names)(torch.from_numpy(x))
    with serving(opener=opener, snapshot_every=2, timeout=60.0) as client:
        answers = client.predict("one", x)
        assert [answer["label"] for answer in answers] == expected.names
        assert [answer["score"] for answer in answers] == pytest.approx(expected.scores.tolist(), abs=1e-6)
        client.predict("two", x)
        assert sorted(stream["stream"] for stream in client.streams()) == ["one", "two"]
        places = [stream["runs_on"] for stream in client.streams()]
        assert len({place["node"] for place in places}) == 2, "a stream has a core, and a node has one"

        for seed in range(4):
            client.predict("one", array(4, seed))
        while client.stats("one")["generation"] < 5:
            time.sleep(0.05)
        with pytest.raises(ServiceError, match="no such stream"):
            client.reset("three")
        with pytest.raises(ServiceError, match="None of these rejects"):
            client.promote("two", [10**9], "nobody")

        for place in places:
            os.kill(place["process"], signal.SIGKILL)
        assert len(again(lambda: client.predict("one", array(4)))) == 4
        assert again(lambda: client.stats("one"))["resumed_from"] == 4, "the last snapshot"
        kept = again(lambda: client.snapshot("one"))
        assert kept == 5
    with serving(opener=opener, timeout=60.0) as client:
        assert client.stats("one")["resumed_from"] == 5


def test_errors_are_told_as_in_one_process(serving, opener, monkeypatch):
    with serving(opener=opener, timeout=60.0) as client:
        with pytest.raises(ServiceError, match="422"):
            client.predict("s", array(2)[:, :2])
        assert len(client.predict("s", array(1))) == 1
        assert client.freeze("s") is None or client.stats("s")["frozen"]
        with pytest.raises(ServiceError, match="no earlier snapshot"):
            client.rollback("s")
        with pytest.raises(ServiceError, match="nobody"):
            client.demote("s", "nobody")
        monkeypatch.setattr("owttt.serve.cluster.CONCURRENT", 0)
        with pytest.raises(ServiceError, match="429"):
            client.predict("s", array(1))
