"""Tests of what puts the parts together."""
