"""The node type `transform`: its value is its output."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.errors import ConfigInvalid
from stepwell.nodes.transform import transform
from tests.nodes.support import executed


@pytest.mark.parametrize("value", [None, 0, "", [1, {"a": None}], {"name": "Ada", "n": 1.5}])
async def test_the_output_is_the_value(value: Any) -> None:
    assert await executed(transform, {"value": value}) == value


async def test_a_transform_needs_a_value() -> None:
    with pytest.raises(ConfigInvalid, match="value: Field required"):
        await executed(transform, {})
