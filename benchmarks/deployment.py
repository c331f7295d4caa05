"""What a deployment meets: where adapting is worse than not adapting, and what every part of `owttt+` gives.

    python benchmarks/deployment.py [--models cifar10-resnet26,cifar10-vit,…] [--known 512] [--results out/deployment]
    python benchmarks/deployment.py --ablation [--rows "owttt+,no memory"] [--batch-size 64]
    python benchmarks/deployment.py --thresholds --looks none [--models cifar10-vit]

The grid has the five looks and six unknown sets (of point clouds, five and four) that were kept aside while `owttt+`
and the threshold by evidence were made (docs/research says what was seen of them all the same), in shares of 0, 5, 20
and 50 %. Rows run as `wrap` does by default, but for those with Otsu's threshold and the last, which is the paper's.
Streams are short: 5 % are 27 unknown samples, and a rate among these is known to within 10 points. How many of the
streams in which a row is behind are so by more than chance is told, too, and in how many it would be behind whatever
the threshold: by OSCR, the area under the share of known samples that are accepted and right, over the share of unknown
ones that are accepted. The ablation switches off one part of `owttt+` at a time, on looks and sets that it was made on;
on these, thresholds are compared, too. Runs are kept in the results folder: what is there is not run again.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from owttt._utils.files import write_json
from owttt._utils.progress import track
from owttt.bench.engine import execute
from owttt.bench.spec import RunSpec, paper_preset, usual_score
from owttt.data import StreamSpec

SVHN, TINY = "npz:svhn_test10k.npz", "npz:tinyimagenet_val.npz"
CLOUDS = "npz:modelnet10_vox30.npz"
KNOWN = {
    "cifar10-resnet26": "cifar10",
    "cifar10-vit": "cifar10",
    "cifar10-resnet11": "cifar10",
    "cifar100-resnet11": "cifar100",
    "modelnet10-dgcnn": CLOUDS,
}
"""The grid's models, and the data sets whose classes they know; any other is taken for one of CIFAR-10."""
LOOKS = ("snow", "gaussian_noise", "defocus_blur", "contrast", "jpeg_compression")
CLOUD_LOOKS = ("occlusion", "lidar", "background", "rotation", "shear")
SHARES = {5: 1 / 19, 20: 1 / 4, 50: 1.0}
"""Percent of unknown samples, and how many that is for each known one."""
DEVELOPED_ON = (
    ("fog", "speckle_noise"),
    ("npz:emnist_letters_test.npz", "npz:dtd10_64.npz", "npz:imagenette_val.npz"),
)
CLEAN = "none"
"""The look of samples that are not corrupted."""
FEW = ("MNIST", "SVHN", "Tiny-ImageNet", "solids")
"""The sets that also come in small shares."""
BEHIND = {"test": 0.5, "bn": 1.0}
"""By how many points a cell may be behind which row."""
REJECTED = "right answers rejected, none unknown"
KEPT = "right answers kept, some unknown, percent"
CHANCE = 2.0
"""Standard errors beyond which a difference is taken for more than chance."""
Stream = tuple[str, str, int]
"""A look, an unknown set, and the percentage of unknown samples."""
Cells = dict[Stream, dict[str, float]]
"""The metrics of a row, in percent, by stream."""


@dataclass(frozen=True)
class Row:
    """A method as it is run."""

    title: str
    method: str
    threshold: str = "evidence"
    paper: bool = False
    score: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


ROWS = (
    Row("test with Otsu", "test", "adaptive"),
    Row("test", "test"),
    Row("bn", "bn"),
    Row("owttt+ with Otsu", "owttt+", "adaptive"),
    Row("owttt+", "owttt+"),
    Row("owttt as published", "owttt", "adaptive", paper=True),
)
ABLATION = (
    Row("test", "test"),
    Row("owttt+", "owttt+"),
    Row("cosine score", "owttt+", score="cosine"),
    Row("nobody is strange", "owttt+", options={"strange": 0.0}),
    Row("nothing is pruned", "owttt+", options={"rounds": 0}),
    Row("nothing need be known", "owttt+", options={"least": 0.0}),
    Row("no memory", "owttt+", options={"momentum": 1.0}),
    Row("no jumps", "owttt+", options={"jump": 100.0}),
    Row("no rest", "owttt+", options={"rest": 0}),
)
THRESHOLDS = (
    Row("test with Otsu", "test", "adaptive"),
    Row("test", "test"),
    Row("owttt+ with Otsu", "owttt+", "adaptive"),
    Row("owttt+", "owttt+"),
)


def rows_of(chosen: argparse.Namespace) -> tuple[Row, ...]:
    """Return what is compared."""
    return ABLATION if chosen.ablation else THRESHOLDS if chosen.thresholds else ROWS


def held_out(known: str) -> dict[str, tuple[str, ...]]:
    """Return the unknown sets of the grid, by title."""
    if known == CLOUDS:
        sets = {"noise": ("noise",), "MNIST": ("mnist-clouds",), "solids": ("solids",)}
        return sets | {"mixed": ("noise", "mnist-clouds", "solids")}
    near = "cifar10" if known == "cifar100" else "cifar100"
    single = {"noise": "noise", "MNIST": "mnist", "SVHN": SVHN, "Tiny-ImageNet": TINY, near: f"{near}@same"}
    return {title: (name,) for title, name in single.items()} | {"mixed": ("noise", "mnist", SVHN)}


def developed_on(chosen: argparse.Namespace) -> bool:
    """Whether streams are of what `owttt+` was made on."""
    return bool(chosen.ablation or chosen.thresholds)


def looks_of(known: str, chosen: argparse.Namespace) -> tuple[str, ...]:
    """Return the looks that known samples come in."""
    if chosen.looks:
        return tuple(chosen.looks.split(","))
    if developed_on(chosen):
        return DEVELOPED_ON[0]
    return CLOUD_LOOKS if known == CLOUDS else LOOKS


def streams(base: StreamSpec, looks: Iterable[str], *, developed: bool) -> Iterator[tuple[Stream, StreamSpec]]:
    """Yield every stream of the grid, by what it is; all have the known set and the sizes of `base`."""
    sets = {name: (name,) for name in DEVELOPED_ON[1]} if developed else held_out(base.known)
    for look in looks:
        corrupted = replace(base, corruptions=() if look == CLEAN else (look,))
        yield (look, "nothing", 0), replace(corrupted, ratio=0.0)
        for title, names in sets.items():
            under = tuple(name.replace("@same", "" if look == CLEAN else f"@{look}") for name in names)
            for percent, ratio in SHARES.items():
                if percent < 50 and not developed and title not in FEW:
                    continue
                yield (look, title, percent), replace(corrupted, unknown=under, ratio=ratio)


def run_of(row: Row, model: str, stream: StreamSpec) -> RunSpec:
    """Return the run of a row on a stream."""
    preset = paper_preset(model, stream.known) if row.paper else None
    score = row.score or usual_score(row.method, preset)
    return RunSpec(model, stream, row.method, preset, score=score, threshold=row.threshold, options=row.options)


def measured(model: str, rows: Iterable[Row], chosen: argparse.Namespace) -> dict[str, Cells]:
    """Run all rows on all streams; return the metrics of those that could be run, in percent."""
    known = KNOWN.get(model, "cifar10")
    base = StreamSpec(known=known, num_samples=chosen.known, batch_size=chosen.batch_size, repeat=True)
    specs = {
        run_of(row, model, stream).digest: (row.title, what, run_of(row, model, stream))
        for what, stream in streams(base, looks_of(known, chosen), developed=developed_on(chosen))
        for row in rows
    }
    found: dict[str, Cells] = defaultdict(dict)
    runs = execute([spec for *_, spec in specs.values()], chosen.results, jobs=chosen.jobs)
    for done in track(runs, Path(model).name, total=len(specs)):
        title, what, _ = specs[done.spec.digest]
        if done.record is not None:
            numbers = done.record["metrics"]
            shares = {name: value for name, value in numbers.items() if isinstance(value, float)}
            percent = {name: 100 * share for name, share in shares.items()}
            found[title][what] = percent | {"error": standard_error(shares)}
    return found


def standard_error(shares: dict[str, float]) -> float:
    """Return that of Acc_H, or of Acc_S where nothing is unknown, in points: S and N are shares of so many samples.

    With H = 2SN/(S + N): dH/dS = 2N²/(S + N)², dH/dN = 2S²/(S + N)².
    """
    known = shares["acc_s"]
    of_known = known * (1 - known) / shares["n_known"]
    if not shares["n_unknown"]:
        return 100 * math.sqrt(of_known)
    unknown = shares["acc_n"]
    of_unknown = unknown * (1 - unknown) / shares["n_unknown"]
    both = max(known + unknown, 1e-9) ** 2
    return 100 * math.hypot(2 * unknown**2 / both * of_known**0.5, 2 * known**2 / both * of_unknown**0.5)


def points(what: Stream) -> str:
    """Return the metric a stream is judged by: Acc_H, or Acc_S where nothing is unknown."""
    return "acc_h" if what[2] else "acc_s"


def summary(found: dict[str, Cells]) -> dict[str, dict[str, Any]]:
    """Return, for every row, means by share, right answers lost to rejection, and the cells that are behind."""
    told = {}
    for title, cells in found.items():
        by_share = {
            str(percent): statistics.fmean(
                numbers[points(what)] for what, numbers in cells.items() if what[2] == percent
            )
            for percent in sorted({what[2] for what in cells})
        }
        told[title] = {
            "by percent of unknowns": by_share,
            "accuracy ignoring rejection": statistics.fmean(numbers["acc_closed"] for numbers in cells.values()),
            REJECTED: statistics.fmean(
                numbers["acc_closed"] - numbers["acc_s"] for what, numbers in cells.items() if not what[2]
            ),
            KEPT: mean_of(
                100 * numbers["acc_s"] / max(numbers["acc_closed"], 1e-9) for what, numbers in cells.items() if what[2]
            ),
            "OSCR": mean_of(numbers["oscr"] for what, numbers in cells.items() if what[2]),
            "cells": len(cells),
        }
        for other, by in BEHIND.items():
            others = found.get(other, {})
            told[title][f"behind {other}"] = behind(cells, others, by)
            told[title][f"behind {other} by OSCR"] = behind(some_unknown(cells), others, by, "oscr")
            told[title][f"beyond chance behind {other}"] = beyond_chance(cells, others)
    return told


def mean_of(values: Iterable[float]) -> float:
    """Return the mean of numbers, NaN if there are none."""
    there = list(values)
    return statistics.fmean(there) if there else math.nan


def some_unknown(cells: Cells) -> Cells:
    """Return the streams in which something is unknown."""
    return {what: numbers for what, numbers in cells.items() if what[2]}


def gaps(cells: Cells, others: Cells, metric: str | None = None) -> dict[Stream, float]:
    """Return by how many points a row is better than another, in the streams that both have."""
    return {
        what: numbers[metric or points(what)] - others[what][metric or points(what)]
        for what, numbers in cells.items()
        if what in others
    }


def behind(cells: Cells, others: Cells, by: float, metric: str | None = None) -> dict[str, float]:
    """Return the streams in which a row is worse than another by more than so many points, and by how many."""
    found = gaps(cells, others, metric)
    return {f"{look} × {title}, {percent} %": gap for (look, title, percent), gap in sorted(found.items()) if gap < -by}


def beyond_chance(cells: Cells, others: Cells) -> int:
    """Return in how many streams a row is worse than another by more than `CHANCE` standard errors of the difference.

    These are taken as if the rows had seen different samples. They see the same ones, and differences between them
    are known better than that.
    """
    errors = {what: math.hypot(cells[what]["error"], others[what]["error"]) for what in cells if what in others}
    return sum(gap < -CHANCE * errors[what] for what, gap in gaps(cells, others).items())


def behind_in_words(numbers: dict[str, Any], other: str) -> str:
    """Return in how many streams a row is behind another; in brackets in how many by more than chance, and by OSCR."""
    count, always = (len(numbers[name]) for name in (f"behind {other}", f"behind {other} by OSCR"))
    return f"{count} of {numbers['cells']} ({numbers[f'beyond chance behind {other}']}; {always})"


def table(model: str, told: dict[str, dict[str, Any]]) -> Table:
    """Return a summary as a table."""
    shares = list(next(iter(told.values()))["by percent of unknowns"])
    headings = ["Acc_S, none unknown" if share == "0" else f"Acc_H, {share} %" for share in shares]
    last = ("ignoring rejection", "rejected of these, none unknown", "kept of these, else", "OSCR")
    caption = "in brackets: by more than chance; by OSCR, whatever the threshold"
    shown = Table(
        "", *headings, *last, *(f"behind {other}" for other in BEHIND), title=Path(model).name, caption=caption
    )
    for title, numbers in told.items():
        means = [f"{numbers['by percent of unknowns'][share]:.1f}" for share in shares]
        counts = [behind_in_words(numbers, other) if other in told else "–" for other in BEHIND]
        shares_of = (f"{numbers[name]:.1f}" for name in ("accuracy ignoring rejection", REJECTED, KEPT, "OSCR"))
        shown.add_row(title, *means, *shares_of, *counts)
    return shown


def kind_of(chosen: argparse.Namespace) -> str:
    """Return what a summary is of, for its name: two of different sizes do not overwrite each other."""
    kind = "ablation" if chosen.ablation else "thresholds" if chosen.thresholds else "grid"
    looks = "-" + chosen.looks.replace(",", "-") if chosen.looks else ""
    return f"{kind}-{chosen.known}x{chosen.batch_size}{looks}" + ("-some" if chosen.rows else "")


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="with commas; by default all, of images only where these are developed on")
    parser.add_argument("--known", type=int, default=512, help="known samples per stream")
    parser.add_argument("--looks", help="other looks than the grid's, with commas")
    parser.add_argument("--ablation", action="store_true", help="one part of owttt+ less at a time")
    parser.add_argument("--thresholds", action="store_true", help="the threshold by evidence against Otsu's")
    parser.add_argument("--rows", help="some of the rows by their titles, with commas")
    parser.add_argument("--batch-size", type=int, default=256, help="samples per batch")
    parser.add_argument("--results", type=Path, default=Path("out/deployment"))
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    rows = {row.title: row for row in rows_of(chosen)}
    titles = chosen.rows.split(",") if chosen.rows else list(rows)
    if unheard := set(titles) - rows.keys():
        parser.error(f"--rows are some of {', '.join(rows)}; there is no {', '.join(sorted(unheard))}.")
    for model in chosen.models.split(",") if chosen.models else KNOWN:
        if developed_on(chosen) and KNOWN.get(model) == CLOUDS:
            continue
        told = summary(measured(model, [rows[title] for title in titles], chosen))
        Console().print(table(model, told))
        write_json(chosen.results / f"{kind_of(chosen)}-{Path(model).name}.summary", {"model": model, "rows": told})


if __name__ == "__main__":
    main()
