"""Triggers: what starts runs."""
