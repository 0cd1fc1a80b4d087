"""Documents come from any installed package, which is found without importing it."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

from training.installed import STDLIB, installed

MODULE = '''
raise RuntimeError("imported")


def fox(jumps: int) -> int:
    """Count how often the fox jumps."""
    return jumps
'''


def test_a_package_is_read_and_not_imported_and_its_entries_bear_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("brown", "quick"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    found = [entry for name in ("brown", "quick") for entry in installed(name)]
    assert [entry.name for entry in found] == ["brown.__init__:fox", "quick.__init__:fox"]
    assert not {"brown", "quick"} & sys.modules.keys()


def test_the_standard_library_is_one_of_them() -> None:
    assert next(islice(installed(STDLIB), 1)).docstring


@pytest.mark.parametrize("name", ["no_such_package", "scikit-learn", "os.path", "this", ""])
def test_what_is_no_installed_package_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"got {name!r}, wanted 'stdlib' or a package"):
        installed(name)
