"""Crafted archives: nothing of them lands outside of its folder, nothing but plain files lands in it."""

import gzip
import io
import random
import stat
import struct
import tarfile
import tempfile
import zipfile
from pathlib import Path

from owttt.data.fetching.archives import UnsafeArchiveError, unpack
from tests.attack.tally import Tally

LIMIT = 2_000_000
PATHS = (
    *(
        "../out",
        "../../out",
        "a/../../out",
        "/out",
        "//out",
        "./../out",
        "a/b/../../../out",
        "..",
        "C:/out",
        "a\\..\\out",
    ),
    *("a/\0out", "a\nout", "\x1b[2Jout", "n" * 2_000, "a/" * 600 + "out"),
)


def tar(members, mode="w:gz", form=tarfile.PAX_FORMAT, pax=None):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=form, pax_headers=pax) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def info(name, size=0, kind=tarfile.REGTYPE, link="", **fields):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            member = zipfile.ZipInfo(name)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            archive.writestr(member, content)
    return buffer.getvalue()


def long_links():
    """Return links whose real path is longer than a system resolves (CVE-2025-4517), and a file through them."""
    members, path = [], ""
    part = "d" * 247
    for letter in "abcdefghijklmnop":
        members.append((info(f"{path}{part}", kind=tarfile.DIRTYPE, mode=0o755), b""))
        members.append((info(f"{path}{letter}", kind=tarfile.SYMTYPE, link=part), b""))
        path = f"{path}{letter}/"
    members.append((info("escape", kind=tarfile.SYMTYPE, link=f"{path}../../../../../../../../../../out"), b""))
    members.append((info("escape/x", 2), b"no"))
    return tar(members)


def crafted():
    """Yield archives that must not be unpacked: a name with its ending, and the bytes."""
    for path in PATHS:
        if "\0" not in path:
            yield "t.tar.gz", tar([(info(path, 2), b"no")])
            yield "z.zip", zipped([(path, b"no", 0)])
        yield "p.tar.gz", tar([(info("x", 2, pax_headers={"path": path}), b"no")])
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        for link in ("..", "/", "../../out", "x"):
            yield (
                "l.tar.gz",
                tar([(info("x", 2), b"ok"), (info("y", kind=kind, link=link), b""), (info("y/z", 2), b"no")]),
            )
    yield "chain.tar.gz", long_links()
    yield "twice.tar.gz", tar([(info("x", 2), b"ok"), (info("x", 2), b"no")])
    yield "below.tar.gz", tar([(info("x", 2), b"ok"), (info("x/y", 2), b"no")])
    yield "large.tar.gz", tar([(info("x", 3 * LIMIT), bytes(3 * LIMIT))])
    yield "many.tar.gz", tar([(info(f"x{n}", LIMIT // 4), bytes(LIMIT // 4)) for n in range(6)])
    yield "pax.tar.gz", tar([(info("x", 2), b"ok")], pax={"comment": "c" * 5_000_000})
    yield "digits.tar.gz", tar([(info("x", 2), b"ok")], pax={"comment": "1" * 200_000})
    yield "part.tar.gz", tar([(info("a/" + "n" * 300, 2), b"no")])
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 4
    yield "chained.tar.gz", tar([(long_name, b"abc\0")] * 400, form=tarfile.GNU_FORMAT)
    whole = tar([(info(f"x{n}", 600), bytes([n]) * 600) for n in range(20)], "w", tarfile.USTAR_FORMAT)
    yield "member.tar", whole[: 3 * 1536]
    flipped = bytearray(whole)
    flipped[3 * 1536] ^= 1
    yield "flipped.tar", bytes(flipped)
    wrong_sum = bytearray(gzip.compress(whole))
    wrong_sum[-8] ^= 1
    yield "sum.tar.gz", bytes(wrong_sum)
    yield "behind.tar", whole + b"more" * 128
    yield "short.tar.gz", gzip.compress(tar([(info("x", 5_000), bytes(5_000))], "w")[:2_000])
    claimed = bytearray(tar([(info("x", 5), b"hello")], "w", tarfile.USTAR_FORMAT))
    claimed[124:136] = b"77777777777\0"
    claimed[148:156] = b"        "
    claimed[148:156] = b"%06o\0 " % sum(claimed[:512])
    yield "claims.tar", bytes(claimed)
    yield "bomb.gz", gzip.compress(bytes(3 * LIMIT))
    yield "bomb.zip", zipped([("x", bytes(3 * LIMIT), 0)])
    yield "link.zip", zipped([("x", b"../../out", stat.S_IFLNK | 0o777), ("x/y", b"no", 0)])
    yield "twice.zip", zipped([("x", b"a", 0), ("./x", b"b", 0)])
    locked = bytearray(zipped([("x", b"secret" * 100, 0)]))
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = locked.index(signature) + place
        locked[start : start + 2] = struct.pack("<H", 1)
    yield "locked.zip", bytes(locked)
    entry = zipped([("x", bytes(100_000), 0)])
    start, end = entry.index(b"PK\1\2"), entry.index(b"PK\5\6")
    central = entry[start:end]
    overlapping = entry[:start] + central + central.replace(b"x", b"y", 1) * 50
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 51, 51, len(overlapping) - start, start, 0)
    yield "overlap.zip", overlapping + tail
    yield "nothing.zip", b""
    yield "nothing.tar.gz", b"PK"


def archives(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Unpack crafted archives, and honest ones with changed bytes."""
    for name, content in crafted():
        _unpack(tally, name, content, must_fail=True)
    honest = {
        "good.tar.gz": tar([(info("set/a", 900), rng.randbytes(900)), (info("set/b", 900), rng.randbytes(900))]),
        "good.tar": tar([(info("set/a", 900), rng.randbytes(900))], "w"),
        "good.zip": zipped([("set/a", rng.randbytes(900), 0), ("set/b", b"b" * 900, 0)]),
        "good.gz": gzip.compress(rng.randbytes(900)),
    }
    expected = {name: _unpack(tally, name, content, must_fail=False) for name, content in honest.items()}
    for name, contents in expected.items():
        tally.check(bool(contents), f"{name}: an honest archive was refused")
    for _ in range(rounds):
        name = rng.choice(sorted(honest))
        changed = bytearray(honest[name])
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        found = _unpack(tally, name, bytes(changed), must_fail=False)
        if name.endswith("gz") and found is not None:
            tally.check(
                sorted(found.values()) == sorted(expected[name].values()), f"{name}: unpacked as something else"
            )


def _unpack(tally: Tally, name: str, content: bytes, *, must_fail: bool) -> dict[str, bytes] | None:
    """Unpack an archive; return the files that came of it, None if it was refused."""
    with tempfile.TemporaryDirectory() as place:
        outer = Path(place)
        folder = outer / "deep" / "er" / "folder"
        folder.mkdir(parents=True)
        (outer / name).write_bytes(content)
        expected = {outer / name, outer / "deep", outer / "deep" / "er", folder}
        try:
            unpack(outer / name, folder, LIMIT)
            failed = False
        except UnsafeArchiveError:
            failed = True
        except Exception as error:
            tally.check(False, f"{name}: {type(error).__name__}: {error}")
            return None
        tally.check(failed or not must_fail, f"{name}: unpacked")
        inside = list(folder.rglob("*"))
        outside = {path for path in outer.rglob("*") if folder not in path.parents} - expected
        tally.check(not outside, f"{name}: wrote {outside}")
        plain = all(not path.is_symlink() and (path.is_dir() or path.stat().st_nlink == 1) for path in inside)
        tally.check(plain, f"{name}: left a link")
        size = sum(path.stat().st_size for path in inside if path.is_file())
        tally.check(size <= LIMIT, f"{name}: wrote {size:,} bytes")
        return None if failed else {path.name: path.read_bytes() for path in inside if path.is_file()}
