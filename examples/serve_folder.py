"""Stream a folder of pictures through a service, and print how it fared.

    owttt serve --model cifar10-resnet11 --state state &
    python examples/serve_folder.py photos --url http://127.0.0.1:8000 [--stream camera-1] [--token-file token]

The folder has one folder per class, as `owttt train` takes it. A picture whose class the model does not know counts as
unknown. Pictures are shown in a random order, which --seed decides.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from rich.console import Console
from rich.table import Table

from owttt._utils.progress import track
from owttt.client import Client

ENDINGS = {".png", ".jpg", ".jpeg", ".webp"}
TOGETHER = 32
"""Pictures per request."""


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Show every picture once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--stream", default="folder")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--known", help="names of the known classes, with commas; those that are answered by default")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)

    token = chosen.token_file.read_text().strip() if chosen.token_file else None
    client = Client(chosen.url, token)
    pictures = sorted(path for path in chosen.folder.glob("*/*") if path.suffix.lower() in ENDINGS)
    random.Random(chosen.seed).shuffle(pictures)
    answers = []
    groups = [pictures[start : start + TOGETHER] for start in range(0, len(pictures), TOGETHER)]
    for group in track(groups, chosen.stream):
        answers += client.predict(chosen.stream, group)

    known = set(chosen.known.split(",") if chosen.known else (answer["best_known_class"] for answer in answers))
    pairs = [(path.parent.name, answer) for path, answer in zip(pictures, answers, strict=True)]
    right = [answer["label"] == name for name, answer in pairs if name in known]
    caught = [answer["unknown"] for name, answer in pairs if name not in known]
    found = {"Acc_S": share(right), "Acc_N": share(caught)}
    table = Table("", "%", title=f"{len(pictures)} pictures through {chosen.url}")
    for name, value in found.items():
        table.add_row(name, f"{100 * value:.1f}")
    Console().print(table)
    return found


def share(values: list[bool]) -> float:
    """Return the share that is true; NaN if there are none."""
    return sum(values) / len(values) if values else float("nan")


if __name__ == "__main__":
    main()
