"""Imports point one way, and importing costs nothing until something is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "owttt"

LAYERS = [
    {"functional"},
    {"_utils"},
    {"types"},
    {"network"},
    {"source"},
    {"detector"},
    {"methods"},
    {"adapter"},
    {"metrics", "checks"},
    {"data"},
    {"models"},
    {"training"},
    {"bench"},
    {"triage", "client"},
    {"serve"},
    {"cli"},
]
"""A room may import from those before it, never from those behind it."""
APART = {"data": {"_utils", "types"}, "triage": {"_utils"}, "client": set()}
"""Rooms that know less than their place would let them."""
RANK = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}


def rooms_imported(path):
    """Yield the rooms of owttt that a file imports at its top level or inside functions, but not for types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "owttt":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if room_of(path) not in ("__init__", "__main__")]


def test_every_room_has_its_place():
    assert {room_of(path) for path in FILES} == set(RANK)
    assert len(RANK) <= 18, "a stranger must find the room of any line in ten seconds"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_one_way(path):
    here = room_of(path)
    for room in rooms_imported(path):
        if room in RANK and room != here:
            assert RANK[room] < RANK[here], f"{here} imports {room}"
            assert here not in APART or room in APART[here], f"{here} knows nothing of {room}"


def loaded_by(code):
    """Return which heavy packages a program has loaded at its end."""
    heavy = {"torch", "rich", "numpy", "owttt.data.registry"}
    program = f"{code}\nimport sys\nprint(' '.join(sorted({heavy} & {{*sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import owttt",
        "import owttt.bench.records",
        "from owttt.data.naming import DataName; DataName.parse('npz:x.npz@snow')",
        "import contextlib, io\nfrom owttt.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--version'])",
    ],
)
def test_it_is_light(code):
    assert loaded_by(code) == []


def test_records_and_text_are_rendered_without_torch():
    assert "torch" not in loaded_by("import owttt.bench.text, owttt.bench.compare, owttt.bench.figures")


def test_every_public_name_is_there():
    import owttt
    from owttt import bench, data

    for package in (owttt, bench, data):
        assert set(dir(package)) >= set(package.__all__) - {"__version__"}
        assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = owttt.nothing


def test_no_room_switches_on_a_name():
    """Facts live beside their subject: no comparison with the name of a method or of a data set."""
    from owttt import METHODS
    from owttt.data import names

    taken = {*METHODS, *names()} - {"test", "noise"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                assert not constants & taken, f"{path.name}, line {node.lineno}"
