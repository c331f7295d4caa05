"""What we export, read by the tools it is for, where these are installed: they are large, and no extra brings them."""

import json
import os
from collections import Counter

import pytest

from owttt.triage.export import export
from tests.triage.test_triage import rejects


@pytest.fixture
def exported(tmp_path):
    groups = {0: rejects(6, 1), 1: rejects(3, 2)}
    for number, one in enumerate(one for group in groups.values() for one in group):
        object.__setattr__(one, "id", number + 1)
    export(groups, tmp_path / "out")
    return tmp_path / "out"


EXPECTED = {"cluster-01": 6, "cluster-02": 3}


def test_fiftyone(exported):
    os.environ["FIFTYONE_DO_NOT_TRACK"] = "1"
    data = pytest.importorskip("fiftyone.utils.data", reason="FiftyOne is not installed")
    labeled = data.FiftyOneImageClassificationDatasetImporter(
        dataset_dir=str(exported), data_path="images", labels_path="labels.json"
    )
    tree = data.ImageClassificationDirectoryTreeImporter(dataset_dir=str(exported / "images"))
    for importer in (labeled, tree):
        with importer:
            assert Counter(label.label for _, _, label in importer) == EXPECTED


def test_datumaro_which_cvat_imports_with(exported):
    components = pytest.importorskip("datumaro.components.dataset", reason="Datumaro is not installed")
    found = components.Dataset.import_from(str(exported / "images"), "imagenet")
    (names,) = found.categories().values()
    assert Counter(names[mark.label].name for item in found for mark in item.annotations) == EXPECTED


def test_label_studio(exported):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="Label Studio's SDK is not installed")
    choices = "".join(f'<Choice value="{name}"/>' for name in EXPECTED)
    shown = '<Image name="image" value="$image"/>'
    config = f'<View>{shown}<Choices name="class" toName="image">{choices}</Choices></View>'
    reader = interface.LabelInterface(config)
    predictions = [one for task in json.loads((exported / "tasks.json").read_text()) for one in task["predictions"]]
    assert len(predictions) == 9
    assert not [wrong for one in predictions if (wrong := reader.validate_prediction(one, return_errors=True))]
