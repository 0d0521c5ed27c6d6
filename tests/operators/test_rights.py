"""The rights by which stand-ins act are those of the operators."""

from __future__ import annotations

import pytest

from e2e.operators.rights import main


@pytest.mark.long  # builds all operators
@pytest.mark.timeout(3600)
def test_rights_of_stand_ins_are_those_of_the_operators_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().err
