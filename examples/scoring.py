"""Functions that mixed-python.yaml calls: one that is plain, one that is async."""

from __future__ import annotations

from typing import Any

import stepwell


@stepwell.function
def score(visits: int, country: str) -> int:
    """How promising a lead is."""
    return visits + (5 if country == "DE" else 0)


@stepwell.function(name="best-lead")
async def best_lead(input: dict[str, Any]) -> dict[str, Any]:
    """The lead with the highest score; the first of several."""
    place, highest = max(enumerate(input["scores"]), key=lambda pair: (pair[1], -pair[0]))
    return {"name": input["leads"][place]["name"], "score": highest}
