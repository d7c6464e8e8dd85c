"""Shapes and types of everything in primitives and methods are checked in every test.

`--without-shape-checks` leaves that out: the tests take half the time.
"""

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

TESTS = Path(__file__).resolve().parent
for folder, package in ((TESTS, "support"), (TESTS.parent, "primitives")):
    if importlib.util.find_spec(package) is None:
        sys.path.insert(0, str(folder))

pytest.register_assert_rewrite("support", "contract")

# The toy's tensors are tiny: a thread pool costs more than it gives, and workers share the cores.
torch.set_num_threads(1)

# Neither an example nor drawing one may be too slow: the machine may be busy.
hypothesis.settings.register_profile(
    "fixed",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
    database=None,
    max_examples=60,
)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption("--without-shape-checks", action="store_true", help="in half the time")


def pytest_configure(config: pytest.Config) -> None:
    """Installs the import hook, before any test module is imported."""
    if not config.getoption("--without-shape-checks"):
        jaxtyping.install_import_hook(["primitives", "methods"], "beartype.beartype")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A program that a test calls sends messages to a stream that is closed when the test ends."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler and handler not in before:
            root.removeHandler(handler)
