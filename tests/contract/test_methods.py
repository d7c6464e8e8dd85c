"""The contract of methods: whatever is composed, lossless means lossless."""

from __future__ import annotations

import pytest

from contract import method_checks
from contract.components import Check, applying, checks_of, param
from contract.methods import Subject, methods_under_test


@pytest.mark.parametrize(
    ("check", "subject"),
    [
        param(check, subject.name, subject)
        for subject in methods_under_test()
        for check in applying(checks_of(method_checks), subject)
    ],
)
def test_method(check: Check, subject: Subject) -> None:
    check(subject)
