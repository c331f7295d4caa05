"""A data name is read once, and says everything that was split out of strings before."""

import pytest

from owttt.data.naming import DataName


@pytest.mark.parametrize(
    ("text", "form", "path", "corruption", "short", "portable"),
    [
        ("cifar10", "", "cifar10", "", "cifar10", "cifar10"),
        ("cifar100@snow", "", "cifar100", "snow", "cifar100", "cifar100"),
        ("cifar100@same", "", "cifar100", "same", "cifar100", "cifar100"),
        ("npz:data/letters.npz", "npz", "data/letters.npz", "", "letters", "npz:letters.npz"),
        ("npz:/a/b/letters.npz@fog", "npz", "/a/b/letters.npz", "fog", "letters", "npz:letters.npz"),
        ("npz:a@b/letters.npz", "npz", "a@b/letters.npz", "", "letters", "npz:letters.npz"),
        ("folder:/mnt/photos@2024", "folder", "/mnt/photos@2024", "", "photos@2024", "folder:photos@2024"),
        ("folder:photos/test/", "folder", "photos/test/", "", "test", "folder:test"),
        (r"npz:C:\data\mine.npz", "npz", r"C:\data\mine.npz", "", "mine", "npz:mine.npz"),
        ("my.data:open", "function", "my.data:open", "", "my.data:open", "my.data:open"),
        ("my.data:open@fog", "function", "my.data:open", "fog", "my.data:open", "my.data:open"),
    ],
)
def test_every_form(text, form, path, corruption, short, portable):
    name = DataName.parse(text)
    assert (name.form, name.path, name.corruption) == (form, path, corruption)
    assert (name.short, name.portable) == (short, portable)
    assert str(name) == text
    assert DataName.parse(str(name)) == name
    assert name.plain == text.removesuffix(f"@{corruption}")


def test_names_are_changed_without_splitting():
    name = DataName.parse("cifar100@snow")
    assert str(name.under("fog")) == "cifar100@fog"
    assert str(name.instead("npz:x/letters.npz")) == "npz:x/letters.npz@snow"
    assert str(DataName.parse("cifar100").instead("mnist")) == "mnist"
