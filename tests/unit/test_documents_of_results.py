"""Tables in documents are those of the committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "readme_table.py"


def test_no_number_was_typed_by_hand() -> None:
    place = importlib.util.spec_from_file_location("readme_table", SCRIPT)
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    assert module.main(["--check"]) == 0
