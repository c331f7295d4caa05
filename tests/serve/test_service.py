"""The service as its clients see it: answers, state, limits, and what nobody gets."""

import io
import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image

from owttt import wrap
from owttt.client import Client, ServiceError
from owttt.serve.decoding import RefusedError
from owttt.serve.limits import Limits
from owttt.serve.streams import Streams, here
from owttt.serve.worker import Worker
from owttt.triage.store import Store
from tests.serve.conftest import TOKEN, array, pictures


def raw(client, path, body=b"", method="POST", **headers):
    """Send anything; return status, headers and body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(client.url + path, body or None, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_answers_are_those_of_an_adapter(serving, model):
    x = array(10)
    expected = wrap(model, "owttt+", source=model.source, classes=model.names)(torch.from_numpy(x))
    with serving() as client:
        answers = client.predict("camera-1", x)
    assert [answer["label"] for answer in answers] == expected.names
    assert [answer["score"] for answer in answers] == pytest.approx(expected.scores.tolist(), abs=1e-6)
    assert len({answer["id"] for answer in answers}) == 10
    first = answers[0]
    assert first["best_known_class"] == model.names[int(expected.closed[0])]
    assert (first["generation"], first["threshold"]) == (0, pytest.approx(float(expected.threshold), abs=1e-6))


def test_formats_and_large_requests(serving, model):
    with serving(batch=8) as client:
        for kind in ("PNG", "JPEG", "WEBP"):
            assert len(client.predict("formats", pictures(3, kind=kind))) == 3
        assert len(client.predict("formats", pictures(30, size=40))) == 30, "in four micro-batches, framed"
        same = [client.predict(name, pictures(2))[0]["score"] for name in ("one", "two")]
        assert same[0] == same[1], "every stream has an adapter of its own"
        file = io.BytesIO()
        np.save(file, (array(1)[0] * 255).astype(np.uint8))
        status, _, body = raw(
            client, "/v1/streams/one/predict", file.getvalue(), Content_Type="application/x-npy", **BEARER
        )
        assert (status, len(json.loads(body)["answers"])) == (200, 1)


def test_it_learns_freezes_and_goes_back(serving):
    with serving(method="tent", snapshot_every=1000) as client:
        client.predict("s", array(70))
        while client.stats("s")["generation"] < 2:
            time.sleep(0.02)
        kept = client.snapshot("s")
        before = client.predict("s", array(2, seed=5))
        client.predict("s", array(70, seed=2))
        client.freeze("s")
        frozen = [client.predict("s", array(2, seed=5))[0]["score"] for _ in range(2)]
        assert frozen[0] == frozen[1]
        assert client.stats("s")["frozen"]
        client.thaw("s")
        assert client.rollback("s") == kept
        assert client.predict("s", array(2, seed=5))[0]["score"] == pytest.approx(before[0]["score"], abs=1e-6)
        client.reset("s")
        assert client.snapshot("s") > kept
        assert client.rollback("s") == kept
        with pytest.raises(ServiceError, match="no earlier snapshot"):
            client.rollback("s")


def test_state_survives_the_service(serving):
    with serving(snapshot_every=2, snapshots=3) as client:
        for seed in range(9):
            client.predict("s", array(64, seed))
    with serving() as client:
        stats = client.stats("s")
        assert stats["resumed_from"] == stats["generation"] == 9, "the last one was written on leaving"
        assert len(stats["snapshots"]) == 3


def test_a_damaged_snapshot_is_passed_over(serving, tmp_path):
    with serving(snapshot_every=1) as client:
        for seed in range(3):
            client.predict("s", array(8, seed))
    files = sorted((tmp_path / "state" / "s" / "snapshots").glob("*.safetensors"))
    files[-1].write_bytes(files[-1].read_bytes()[:-50])
    with serving() as client:
        assert client.stats("s")["resumed_from"] == int(files[-2].stem)


def test_an_error_in_a_batch_is_told_and_the_stream_goes_on(serving, model):
    def make():
        adapter = wrap(model, "test", source=model.source, classes=model.names)
        inner = adapter.predict_then_learn

        def sometimes(x):
            if float(x[0, 0, 0, 0]) == 1.0:
                raise RuntimeError("/secret/path of the inside")
            return inner(x)

        adapter.predict_then_learn = sometimes
        return adapter

    bad = array(1)
    bad[0, 0, 0, 0] = 1.0
    with serving(make=make) as client:
        assert client.predict("s", array(2))
        with pytest.raises(ServiceError, match="500: Something went wrong") as told:
            client.predict("s", bad)
        assert "secret" not in str(told.value)
        assert client.predict("s", array(2))


def test_poison_is_refused_or_rejected_and_harms_nobody(serving):
    with serving(method="owttt") as client:
        before = client.predict("s", array(4))
        with pytest.raises(ServiceError, match="422: The model does not take this"):
            client.predict("s", 3e5 * np.ones((1, 3, 16, 16), np.float32))
        assert len(client.predict("s", 3.5 * np.ones((1, 3, 16, 16), np.float32))) == 1
        assert client.predict("s", array(4))[0]["score"] == pytest.approx(before[0]["score"], abs=1e-5)


def test_a_request_at_fault_fails_alone(serving, model):
    def make():
        adapter = wrap(model, "test", source=model.source, classes=model.names)
        inner = adapter.predict_then_learn

        def refusing(x):
            if bool((x[:, 0, 0, 0] == 1).any()):
                raise RuntimeError("no")
            return inner(x)

        adapter.predict_then_learn = refusing
        return adapter

    bad = array(1)
    bad[0, 0, 0, 0] = 1.0
    with serving(make=make, wait=0.5, batch=50) as client:
        told = {}

        def ask(name, x):
            try:
                told[name] = len(client.predict("s", x))
            except ServiceError as error:
                told[name] = error.status

        threads = [threading.Thread(target=ask, args=(n, bad if n == 2 else array(1, n))) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == {0: 1, 1: 1, 2: 500, 3: 1, 4: 1}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content_Type": "image/png"}, b"no image", 422),
        ({"Content_Type": "image/gif"}, b"GIF89a", 415),
        ({"Content_Type": "application/python-pickle"}, b"\x80\x04.", 415),
        ({"Content_Type": "application/x-npy"}, b"\x93NUMPY\x01\x00", 422),
        ({"Content_Type": "application/x-safetensors"}, b"\xff" * 20, 422),
        ({"Content_Type": "multipart/form-data; boundary=x"}, b"--x--\r\n", 400),
        ({"Content_Type": "multipart/form-data"}, b"--x--\r\n", 400),
        ({}, b"", 400),
    ],
)
def test_what_is_nothing_gets_a_reason(serving, headers, body, status):
    with serving() as client:
        found, _, told = raw(client, "/v1/streams/s/predict", body, **{"Content_Type": "", **headers}, **BEARER)
        assert found == status or (status == 400 and found in (400, 415))
        assert json.loads(told)["detail"]
        assert client.streams() == [], "nothing came to be"


def test_arrays_that_lie(serving):
    file = io.BytesIO()
    np.save(file, np.array([object()]), allow_pickle=True)
    wrong = {
        "pickled": file.getvalue(),
        "longer than it is": _npy(np.zeros((1, 3, 16, 16), np.float32))[:-8],
        "NaN": _npy(np.full((1, 3, 16, 16), np.nan, np.float32)),
        "four channels": _npy(np.zeros((1, 4, 16, 16), np.float32)),
        "too many": _npy(np.zeros((300, 3, 2, 2), np.float32)),
        "empty": _npy(np.zeros((0, 3, 16, 16), np.float32)),
        "words": _npy(np.array(["a"])),
    }
    with serving() as client:
        for what, body in wrong.items():
            status, _, _ = raw(client, "/v1/streams/s/predict", body, Content_Type="application/x-npy", **BEARER)
            assert status in (413, 415, 422), what


def _npy(values):
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def test_sizes_are_bounded(serving):
    with serving(body_bytes=200_000, image_pixels=5000, images=4, queued=8) as client:
        with pytest.raises(ServiceError, match="413: At most 5,000 pixels"):
            client.predict("s", pictures(1, size=100))
        with pytest.raises(ServiceError, match=r"413|400"):
            client.predict("s", pictures(5))
        status, _, _ = raw(client, "/v1/streams/s/predict", b"x" * 200_001, Content_Type="image/png", **BEARER)
        assert status == 413


def test_narrow_images_do_not_grow(serving):
    """The shorter side of an image is brought to the model's; a thread of pixels would become a carpet."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((1, 60_000, 3), np.uint8)).save(file, "PNG")
    with serving(image_pixels=100_000, request_pixels=3000) as client:
        for images in ([file.getvalue()], np.zeros((1, 3, 1, 60_000), np.float32)):
            with pytest.raises(ServiceError, match="413: At most 100,000 pixels per image, as it is and framed"):
                client.predict("s", images)
        with pytest.raises(ServiceError, match="413: At most 3,000 pixels per request"):
            client.predict("s", pictures(2, size=50))


def test_without_a_token_no_page_of_another_site_gets_in(serving):
    with serving(token=None) as client:
        client.predict("s", array(1))
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Host": "evil.example:80"}):
            status, _, _ = raw(client, "/v1/streams/s/reset", **headers)
            assert status == 403
        host = client.url.removeprefix("http://")
        assert raw(client, "/v1/streams/s/reset", Origin=f"http://{host}", Host=host)[0] == 200


def test_what_was_done_by_hand_survives_a_kill(serving, model, tmp_path):
    with serving(method="test", snapshot_every=1000, state=tmp_path / "a") as client:
        client.predict("s", array(20))
        client.freeze("s")
        worker_state = tmp_path / "a" / "s"
        assert (worker_state / "frozen").exists()
        client.reset("s")
        kept = sorted((worker_state / "snapshots").glob("*.safetensors"))
        assert kept, "written at once, not when it is time"
    with serving(method="test", state=tmp_path / "a") as client:
        assert client.stats("s")["frozen"]
        client.thaw("s")
    with serving(method="test", state=tmp_path / "a") as client:
        assert not client.stats("s")["frozen"]


def test_requests_that_were_given_up_are_not_learned_from(model, tmp_path):
    from owttt.serve.limits import Limits

    begin = threading.Event()
    adapter = wrap(model, "test", source=model.source)
    inner = adapter.predict_then_learn
    adapter.predict_then_learn = lambda x: (begin.wait(10), inner(x))[1]
    worker = Worker("s", adapter, tmp_path / "s", Limits(wait=0.0, batch=4), lambda *_: None)
    first = worker.submit(torch.from_numpy(array(4)))
    time.sleep(0.1)
    second, third = (worker.submit(torch.from_numpy(array(4, seed))) for seed in (1, 2))
    assert second.cancel()
    assert not first.cancel(), "its batch is under way"
    begin.set()
    assert len(first.result(10)) == len(third.result(10)) == 4
    worker.close(10)
    assert worker.stats()["samples"] == 8


def test_names_tokens_and_streams(serving, tmp_path):
    with serving(streams=2) as client:
        for name in ("..", "a/b", "%2e%2e%2fetc", "x" * 65, "a b", "-a", "ü"):
            with pytest.raises(ServiceError) as told:
                client.predict(name, array(1))
            assert told.value.status in (404, 405, 422), name
        client.predict("a", array(1))
        client.predict("b", array(1))
        with pytest.raises(ServiceError, match="429: There are 2 streams"):
            client.predict("c", array(1))
        assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["a", "b"]
        with pytest.raises(ServiceError, match="404"):
            client.stats("c")
        for token in (None, "wrong", TOKEN + "x"):
            with pytest.raises(ServiceError, match="401"):
                Client(client.url, token).stats("a")
        assert raw(client, "/livez", method="GET")[0] == raw(client, "/readyz", method="GET")[0] == 200
        assert raw(client, "/metrics", method="GET")[0] == 401
        text = raw(client, "/metrics", method="GET", **BEARER)[2].decode()
        assert 'owttt_samples_total{stream="a"} 1.0' in text
        assert 'owttt_refused_total{status="401"}' in text


def test_it_sheds_load_and_recovers(serving, model):
    slow = threading.Event()

    def make():
        adapter = wrap(model, "test", source=model.source, classes=model.names)
        inner = adapter.predict_then_learn
        adapter.predict_then_learn = lambda x: (slow.wait(10), inner(x))[1]
        return adapter

    with serving(make=make, queued=6, batch=2) as client:
        told = []
        threads = [threading.Thread(target=lambda: told.append(_status(client))) for _ in range(12)]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        time.sleep(0.3)
        assert 429 in told, "those beyond the queue are told at once"
        slow.set()
        for thread in threads:
            thread.join()
        assert sorted(set(told)) == [200, 429]
        assert told.count(200) >= 3
        assert client.predict("s", array(1))


def _status(client):
    try:
        client.predict("s", array(2))
    except ServiceError as error:
        return error.status if error.retry_after else 0
    return 200


def test_requests_of_many_clients_are_batched_in_order(serving):
    with serving(batch=16, wait=0.2) as client:
        answers = {}
        threads = [
            threading.Thread(target=lambda n=n: answers.update({n: client.predict("s", array(1, n))}))
            for n in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 12
        assert client.stats("s")["generation"] <= 4, "few batches for many requests"


def test_rejects_are_kept_grouped_promoted_and_demoted(serving):
    with serving(method="test", make=None) as client:
        client.predict("s", array(60))
        while client.stats("s")["generation"] < 1:
            time.sleep(0.02)
        stats = client.stats("s")
        rejected = round(stats["rejected"] * 60)
        assert stats["rejects"] == rejected
        if rejected < 5:
            pytest.skip("this small network rejects too few of them")
        groups = client.clusters("s")
        assert sum(group["size"] for group in groups) == rejected
        ids = [number for group in groups for number in group["ids"]][:10]
        client.promote("s", ids, "stranger")
        assert client.stats("s")["promoted"] == ["stranger"]
        assert "stranger" in {answer["label"] for answer in client.predict("s", array(60))}
        with pytest.raises(ServiceError, match="409"):
            client.promote("s", ids, "stranger")
        with pytest.raises(ServiceError, match="404"):
            client.promote("s", [10**9], "nobody")
        client.demote("s", "stranger")
        assert client.stats("s")["promoted"] == []


def test_doubtful_ones_are_kept_on_request(serving, tmp_path):
    with serving(method="test", doubtful=0.5) as client:
        answers = client.predict("s", array(60))
        while client.stats("s")["generation"] < 1:
            time.sleep(0.02)
    store = Store.open(tmp_path / "state" / "s" / "rejects.sqlite")
    threshold = answers[0]["threshold"]
    doubtful = [answer["score"] for answer in answers if not answer["unknown"] and answer["score"] >= threshold / 2]
    assert sorted(one.score for one in store.all() if one.accepted) == pytest.approx(sorted(doubtful))
    assert sum(not one.accepted for one in store.all()) == sum(answer["unknown"] for answer in answers)


def test_shutdown_answers_what_waits(serving, model, tmp_path):
    from owttt.serve.limits import Limits

    worker = Worker("s", wrap(model, source=model.source), tmp_path / "s", Limits(wait=0.5), lambda *_: None)
    futures = [worker.submit(torch.from_numpy(array(3, seed))) for seed in range(5)]
    worker.close(20)
    assert [len(future.result(0)) for future in futures] == [3] * 5
    assert worker.snapshots.generations() == [1]


def test_openapi_and_the_shell_of_the_dashboard(serving):
    with serving() as client:
        document = json.loads(raw(client, "/openapi.json", method="GET", **BEARER)[2])
        assert "image/webp" in document["paths"]["/v1/streams/{stream}/predict"]["post"]["requestBody"]["content"]
        for path in ("/", "/dashboard.js", "/dashboard.css"):
            status, headers, body = raw(client, path, method="GET")
            assert status == 200
            assert "default-src 'none'" in headers["content-security-policy"]
            assert b"http" not in body.replace(b"http://www.w3.org/2000/svg", b""), "nothing is loaded from elsewhere"


def test_a_stream_that_takes_long_to_open_keeps_nobody_waiting(model, tmp_path):
    """Those who ask for it wait together; the others do not; and what failed can be tried again."""
    make, slow, tries = here(lambda: wrap(model, source=model.source)), threading.Event(), []

    def opener(name, *rest):
        tries.append(name)
        if name == "slow":
            assert slow.wait(30)
        if name == "broken" and len(tries) < 5:
            raise RuntimeError("not yet")
        return make(name, *rest)

    streams = Streams(model, opener, tmp_path / "state", Limits(), lambda *_: None)
    found = []
    asking = [threading.Thread(target=lambda: found.append(streams.get("slow"))) for _ in range(2)]
    for thread in asking:
        thread.start()
    assert streams.get("fast").name == "fast"
    with pytest.raises(RefusedError):
        streams.find("slow")
    slow.set()
    for thread in asking:
        thread.join(30)
    assert found[0] is found[1] is streams.find("slow")
    assert tries.count("slow") == 1
    with pytest.raises(RuntimeError, match="not yet"):
        streams.get("broken")
    while "broken" not in streams.names():
        try:
            streams.get("broken")
        except RuntimeError:
            tries.append("again")
    streams.close()
