"""Who listens to what the engine tells of itself: Prometheus, and OpenTelemetry."""

from __future__ import annotations
