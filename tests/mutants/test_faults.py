"""The list of faults fits the code: each edit has one place, and changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_one_place_and_tests_to_catch_it(fault: Fault) -> None:
    code = (ROOT / "speculation" / fault.path).read_text()
    assert code.count(fault.old) == 1
    assert fault.new not in (fault.old, None)
    for test in fault.tests:
        assert (ROOT / "tests" / "speculation" / test).is_file()
