"""For authors of stores, nodes and workflows: a fake clock, store conformance, simulation."""

from __future__ import annotations
