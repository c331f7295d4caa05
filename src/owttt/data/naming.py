"""The name of a data set, read once; needs no torch.

cifar10                  one of `owttt data list`
npz:letters.npz          one's own: a form (npz, folder, h5) and a path
my_package.data:open     somebody's function of a split
cifar100@snow            any of these under a corruption
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final, final

PATH_FORMS: Final = ("npz", "folder", "h5")
"""What one's own data may come as."""
FUNCTION: Final = "function"
SAME: Final = "same"
"""`name@same` in a table: under the corruption that the known samples are under."""

_CORRUPTION: Final = re.compile(r"(.+)@([a-z_]+)")
"""A word of small letters behind an @; photos@2024 is a folder."""


@final
@dataclass(frozen=True)
class DataName:
    """`form` is empty for a name of the catalog, one of `PATH_FORMS`, or "function"; `corruption` is often empty."""

    form: str
    path: str
    corruption: str = ""

    @classmethod
    def parse(cls, text: str) -> DataName:
        """Read a name.

        >>> DataName.parse("npz:data/letters.npz@snow")
        DataName(form='npz', path='data/letters.npz', corruption='snow')
        >>> DataName.parse("cifar10").short
        'cifar10'
        """
        found = _CORRUPTION.fullmatch(text)
        plain, corruption = found.groups() if found else (text, "")
        form, colon, path = plain.partition(":")
        if colon and path and form in PATH_FORMS:
            return cls(form, path, corruption)
        return cls(FUNCTION if colon else "", plain, corruption)

    def __str__(self) -> str:
        return self.plain + (f"@{self.corruption}" if self.corruption else "")

    @property
    def plain(self) -> str:
        """The name without its corruption."""
        return f"{self.form}:{self.path}" if self.form in PATH_FORMS else self.path

    @property
    def short(self) -> str:
        """The name for people: no form, no folder, no ending, no corruption."""
        if self.form in PATH_FORMS:
            return PurePosixPath(self.path.replace("\\", "/")).name.removesuffix(f".{self.form}")
        return self.path

    @property
    def portable(self) -> str:
        """The name without the folders of the machine it was used on."""
        if self.form in PATH_FORMS:
            return f"{self.form}:{PurePosixPath(self.path.replace(chr(92), '/')).name}"
        return self.path

    def under(self, corruption: str) -> DataName:
        """Return the same set under a corruption."""
        return replace(self, corruption=corruption)

    def instead(self, other: str) -> DataName:
        """Return another set under this one's corruption."""
        return replace(DataName.parse(other), corruption=self.corruption)
