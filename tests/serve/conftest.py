"""A service on a free port of this machine, with a small model."""

import io
import socket
import threading
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from owttt import models, wrap
from owttt.client import Client
from owttt.serve.limits import Limits

uvicorn = pytest.importorskip("uvicorn", reason="the service is not installed: pip install 'owttt[serve]'")

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="session")
def model(place):
    return models.load(str(place / "model"))


@pytest.fixture
def serving(model, tmp_path):
    """Return a function that starts a service, and ends it with the test."""

    @contextmanager
    def start(token=TOKEN, method="owttt+", state=tmp_path / "state", make=None, opener=None, **limits):
        from owttt.serve.app import make_app
        from owttt.serve.streams import Streams, here

        bounds = Limits(**{"wait": 0.001, "timeout": 20.0, **limits})
        make = make or partial(wrap, model, method, source=model.source, classes=model.names)
        app = make_app(lambda tell: Streams(model, opener or here(make), state, bounds, tell), token)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=20))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Client(f"http://127.0.0.1:{port}", token, timeout=30)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()

    return start


def pictures(number, seed=0, kind="PNG", size=16):
    random = np.random.default_rng(seed)
    made = []
    for pixels in random.integers(0, 256, (number, size, size, 3), dtype=np.uint8):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
        made.append(file.getvalue())
    return made


def array(number, seed=0):
    return torch.rand(number, 3, 16, 16, generator=torch.Generator().manual_seed(seed)).numpy()
