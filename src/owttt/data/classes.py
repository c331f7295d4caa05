"""Which samples of a data set belong to the classes a model knows, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from owttt.data.dataset import Dataset

TINY_IMAGENET: Final[dict[str, str]] = {
    # CIFAR-10
    "automobile": "n03977966 n03670208 n04285008 n02814533 n03100240",
    "bird": "n02058221 n02056570 n01855672 n02002724",
    "cat": "n02124075 n02123045 n02123394",
    "dog": "n02106662 n02099712 n02099601 n02094433 n02085620 n02113799",
    "frog": "n01641577 n01644900",
    "ship": "n03447447 n03662601",
    "truck": "n03796401",
    # CIFAR-100
    "aquarium_fish": "n01443537",
    "bear": "n02132136",
    "bee": "n02206856",
    "beetle": "n02165456",
    "bottle": "n03983396 n02823428 n03937543",
    "bridge": "n04366367 n04311004 n04532670",
    "bus": "n04146614 n04487081",
    "butterfly": "n02279972 n02281406",
    "camel": "n02437312",
    "cattle": "n02403003 n02410509",
    "chair": "n04099969",
    "chimpanzee": "n02481823",
    "cockroach": "n02233338",
    "crocodile": "n01698640",
    "elephant": "n02504458",
    "keyboard": "n03085013",
    "lamp": "n03637318",
    "lawn_mower": "n03649909",
    "lion": "n02129165",
    "lobster": "n01983481 n01984695",
    "mountain": "n09193705",
    "mushroom": "n07734744",
    "orange": "n07747607",
    "plate": "n07579787",
    "rocket": "n04008634",
    "sea": "n09428293",
    "snail": "n01944390",
    "snake": "n01742172",
    "spider": "n01774750 n01774384",
    "streetcar": "n04487081",
    "sweet_pepper": "n07720875",
    "table": "n03201208 n03179701",
    "telephone": "n03902125",
    "tractor": "n04465501",
    "train": "n02917067 n03393912",
}
"""Classes of Tiny-ImageNet that CIFAR-10 and CIFAR-100 know under another name.

Left in as unknown, because a person would tell them apart: school bus, trolleybus and tractor from CIFAR-10's trucks,
gazelle, ox, bighorn and bison from its deer, cougar and lion from its cats, projectile from its airplanes.
"""


SYNONYMS: Final = {"aeroplane": "airplane", "car": "automobile", "motorbike": "motorcycle"}


def without_known(unknown: Dataset, known: Sequence[str], names: Sequence[str] = ()) -> Dataset:
    """Return the unknown set without the classes that are among the known ones, by identifier, name or meaning.

    `names` are further names of the known classes. Numbers are no names: the digit 3 is not class 3 of something else.
    """
    taken = {_short(name) for name in (*known, *names) if not name.isdigit()}
    taken |= {wnid for name in known for wnid in TINY_IMAGENET.get(name, "").split()}
    pairs = zip(unknown.classes, unknown.names, strict=True)
    shared = [identifier for identifier, name in pairs if {_short(identifier), _short(name)} & taken]
    return unknown.without(shared) if shared else unknown


def align(dataset: Dataset, classes: Sequence[str], names: Sequence[str] | None = None) -> Dataset:
    """Return the samples of a model's classes with the model's labels, matched by identifier or else by name."""
    if tuple(classes) == dataset.classes:
        return dataset
    by_identifier = {identifier: label for label, identifier in enumerate(classes)}
    by_name = {_short(name): label for label, name in reversed(list(enumerate(names or classes)))}
    for table in (
        [by_identifier.get(identifier, -1) for identifier in dataset.classes],
        [by_name.get(_short(name), -1) for name in dataset.names],
    ):
        if max(table, default=-1) >= 0:
            return dataset.relabeled(table, classes, names)
    if len(classes) == len(dataset.classes) and all(name.isdigit() for name in dataset.classes):
        return dataset.relabeled(range(len(classes)), classes, names)
    raise ValueError(
        f"The model's {len(classes)} classes ({_some(classes)}) and the data's {len(dataset.classes)} "
        f"({_some(dataset.classes)}) have no name in common; data without names is matched by number."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _short(name: str) -> str:
    """Return the first of several names, in a form that spelling does not change."""
    plain = name.partition(",")[0].strip().lower().replace("_", " ").replace("-", " ")
    return SYNONYMS.get(plain, plain)
