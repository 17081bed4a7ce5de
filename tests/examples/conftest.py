"""What tests of examples ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.support import Typist


@pytest.fixture
def typist(tmp_path: Path) -> Typist:
    """Types commands on an empty store."""
    return Typist(tmp_path)
