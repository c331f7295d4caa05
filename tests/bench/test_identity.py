"""Runs keep their names: a new option with a default renames nothing, and the first results are still found."""

import dataclasses
import json
from dataclasses import replace

import pytest

from owttt.bench.results import Results, file_name
from owttt.bench.spec import RunSpec, unusual
from owttt.bench.tables import paper
from owttt.data.streams.spec import StreamSpec

SPECS = [
    RunSpec("m", StreamSpec()),
    RunSpec("m", StreamSpec(corruptions=("snow",), unknown=("mnist",), num_samples=20), method="bn", window=64),
    RunSpec("m", StreamSpec(seed=3), threshold=(0.4, 1.0), options={"lr": 0.1}, preset="cifar10-c"),
]


def with_more_fields(cls, name):
    """Return a spec's class as it would be with one more option."""
    extra = [(name, "int", dataclasses.field(default=7))]
    return dataclasses.make_dataclass(cls.__name__, extra, bases=(cls,), frozen=True)


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_a_new_option_renames_nothing(spec):
    more_run, more_stream = with_more_fields(RunSpec, "later"), with_more_fields(StreamSpec, "later_too")
    stream = more_stream(**{f.name: getattr(spec.stream, f.name) for f in dataclasses.fields(StreamSpec)})
    same = more_run(**{f.name: getattr(spec, f.name) for f in dataclasses.fields(RunSpec)} | {"stream": stream})
    assert same.later == same.stream.later_too == 7, "the field is there"
    assert same.digest == spec.digest
    assert same.first_digest == spec.first_digest
    other = replace(same, later=8)
    assert other.digest != spec.digest
    assert other.first_digest is None, "the first results did not know it"
    assert replace(same, stream=replace(stream, later_too=8)).digest != spec.digest


def test_whatever_differs_is_another_run():
    base = RunSpec("m", StreamSpec(unknown=("mnist",)))
    changes = [
        {"model": "n"}, {"method": "bn"}, {"preset": "cifar10-c"}, {"order": "adapt-then-predict"}, {"score": "energy"},
        {"threshold": 0.5}, {"window": 5}, {"classifier": "head"}, {"source": "mnist"}, {"restrict": True},
        {"options": {"lr": 1}}, {"weights": "w.pt"}, {"embed": True},
    ]  # fmt: skip
    assert {name for change in changes for name in change} == {f.name for f in dataclasses.fields(RunSpec)} - {"stream"}
    streams = [
        {"known": "mnist"}, {"corruptions": ("fog",)}, {"severity": 2}, {"frost": "f"}, {"unknown": ()}, {"ratio": 2.0},
        {"num_samples": 3}, {"batch_size": 2}, {"seed": 1}, {"phases": "changing"}, {"cycles": 2}, {"share": "rising"},
        {"bursts": 2}, {"dirichlet": 0.1}, {"repeat": True},
    ]  # fmt: skip
    assert {name for change in streams for name in change} == {f.name for f in dataclasses.fields(StreamSpec)}
    specs = [replace(base, **change) for change in changes]
    specs += [replace(base, stream=replace(base.stream, **change)) for change in streams]
    assert len({spec.digest for spec in (base, *specs)}) == len(specs) + 1


def test_only_what_is_unusual_counts():
    assert unusual(SPECS[0]) == {"model": "m", "stream": {}}
    assert unusual(SPECS[1])["stream"] == {"corruptions": ("snow",), "unknown": ("mnist",), "num_samples": 20}


def test_the_names_that_the_first_results_had():
    """Taken from results that were committed before digests covered differences only."""
    table = paper()["table1"]
    row = next(row for row in table.rows if row.name == "owttt")
    column = next(column for column in table.columns if column.name == "mnist")
    spec = next(spec for spec in table.cell(row, column) if spec.stream.corruptions == ("snow",))
    spec = replace(spec, model="cifar10-resnet26", stream=replace(spec.stream, num_samples=2000, repeat=True))
    assert spec.first_digest[:16] == "587255b824019320"


def test_first_results_are_found(tmp_path):
    spec, prints = SPECS[1], {"algorithm": 1}
    record = {"kind": "owttt run", "format": 2, "fingerprints": prints, "metrics": {}}
    results = Results(tmp_path)
    assert results.find(spec, prints, "s") is None
    (tmp_path / f"bn-{spec.first_digest[:16]}.json").write_text(json.dumps(record))
    path, found = results.find(spec, prints, "s")
    assert (found, path.name) == (record, f"bn-{spec.first_digest[:16]}.json")
    assert results.find(spec, {"algorithm": 2}, "s") is None
    (tmp_path / "embeddings").mkdir()
    embedded = replace(spec, embed=True)
    assert results.find(embedded, prints, "s") is None, "that run has no embedding"
    (tmp_path / "embeddings" / f"bn-{spec.first_digest[:16]}.json").write_text(json.dumps(record))
    assert results.find(embedded, prints, "s") is not None
    results.write(spec, record | {"metrics": {"acc_s": 1.0}})
    assert results.find(spec, prints, "s")[1]["metrics"] == {"acc_s": 1.0}, "a new record comes first"


def test_a_run_with_other_source_statistics_is_another_run(tmp_path):
    spec, prints = SPECS[1], {"algorithm": 1}
    results = Results(tmp_path)
    results.write(spec, {"kind": "owttt run", "format": 2, "fingerprints": prints, "adapter": {"source": "s"}})
    assert results.find(spec, prints, "s") is not None
    assert results.find(spec, prints, "t") is None
    results.write(spec, {"kind": "owttt run", "format": 2, "fingerprints": prints, "adapter": None})
    assert results.find(spec, prints, "t") is not None, "it does not say"


def test_names_of_files_are_safe():
    assert file_name(replace(SPECS[0], method="my_package.methods:Mine")).startswith("my_package.methods-Mine-")
