"""Rejected samples in the forms that people and labelling tools read.

images/<cluster>/<id>.png   a folder per class, which CVAT, FiftyOne and torchvision import as it is
rejects.csv                 one line per sample
labels.json                 FiftyOne's image classification format: {"classes": […], "labels": {cluster/id: index}}
tasks.json                  Label Studio tasks with the cluster as a prediction, and the score
index.html                  a page to look at, with nothing loaded from elsewhere
"""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader

from owttt._utils.files import write_bytes
from owttt.triage.clusters import ALONE
from owttt.triage.store import Reject

SHOWN: Final = 60
"""Pictures of a cluster on the page."""
Clusters = Mapping[int, Sequence[Reject]]


def name_of(number: int) -> str:
    """Return what a cluster is called."""
    return "alone" if number == ALONE else f"cluster-{number + 1:02d}"


def export(clusters: Clusters, folder: Path) -> list[Path]:
    """Write all forms into a folder, and return the files beside the pictures.

    Raises:
        FileExistsError: The folder holds something already: exports are not mixed.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: not empty; export into a new folder.")
    for number, rejects in clusters.items():
        place = folder / "images" / name_of(number)
        place.mkdir(parents=True, exist_ok=True)
        for one in rejects:
            if one.png is not None:
                write_bytes(place / f"{one.id}.png", one.png)
            else:
                write_bytes(place / f"{one.id}.npy", _npy(one))
    written = {
        "rejects.csv": _csv(clusters),
        "labels.json": json.dumps(fiftyone_labels(clusters), indent=1),
        "tasks.json": json.dumps(label_studio_tasks(clusters), indent=1),
        "index.html": page(clusters),
    }
    for name, text in written.items():
        write_bytes(folder / name, text.encode())
    return [folder / name for name in written]


def fiftyone_labels(clusters: Clusters) -> dict[str, Any]:
    """Return FiftyOne's classification labels: classes, and for each file below images, without ending, the index."""
    names = [name_of(number) for number in clusters]
    labels = {
        f"{name}/{one.id}": place
        for place, (name, rejects) in enumerate(zip(names, clusters.values(), strict=True))
        for one in rejects
        if one.png is not None
    }
    return {"classes": names, "labels": labels}


def label_studio_tasks(clusters: Clusters) -> list[dict[str, Any]]:
    """Return Label Studio tasks, pictures inside; the cluster is the prediction, the score how unknown a sample is."""
    return [
        {
            "data": {
                "image": f"data:image/png;base64,{base64.b64encode(one.png).decode()}",
                "reject": one.id,
                "best_known_class": one.best,
            },
            "predictions": [
                {
                    "model_version": "owttt",
                    "score": one.score,
                    "result": [
                        {
                            "from_name": "class",
                            "to_name": "image",
                            "type": "choices",
                            "value": {"choices": [name_of(number)]},
                        }
                    ],
                }
            ],
        }
        for number, rejects in clusters.items()
        for one in rejects
        if one.png is not None
    ]


def page(clusters: Clusters) -> str:
    """Return a page of all clusters: pictures, sizes, and how their scores and numbers went over time."""
    environment = Environment(loader=PackageLoader("owttt.triage"), autoescape=True)
    rows = [
        {
            "name": name_of(number),
            "size": len(rejects),
            "mean": float(np.mean([one.score for one in rejects])),
            "best": _commonest([one.best for one in rejects]),
            "pictures": [base64.b64encode(one.png).decode() for one in rejects[:SHOWN] if one.png],
            "points": _points(rejects, clusters),
        }
        for number, rejects in clusters.items()
        if rejects
    ]
    total = sum(map(len, clusters.values()))
    return environment.get_template("triage.html").render(rows=rows, total=total)


def _points(rejects: Sequence[Reject], clusters: Clusters) -> list[tuple[float, float]]:
    """Return scores over time, both from 0 to 100, time and score over all clusters."""
    every = [one for group in clusters.values() for one in group]
    first, last = min(one.time for one in every), max(one.time for one in every)
    highest = max([1e-9, *(one.score for one in every)])
    return [
        (round(100 * (one.time - first) / max(last - first, 1e-9), 1), round(100 - 100 * one.score / highest, 1))
        for one in rejects
    ]


def _commonest(names: Sequence[str]) -> str:
    return max(sorted(set(names)), key=names.count)


def _csv(clusters: Clusters) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["id", "cluster", "time", "generation", "score", "threshold", "best_known_class", "accepted"])
    for number, rejects in clusters.items():
        for one in rejects:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.time))
            best = f"'{one.best}" if one.best[:1] in "=+-@\t\r" else one.best
            threshold = "" if one.threshold is None else f"{one.threshold:.6g}"
            writer.writerow(
                [one.id, name_of(number), when, one.generation, f"{one.score:.6g}", threshold, best, int(one.accepted)]
            )
    return file.getvalue()


def _npy(one: Reject) -> bytes:
    file = io.BytesIO()
    np.save(file, one.sample, allow_pickle=False)
    return file.getvalue()
