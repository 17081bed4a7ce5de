"""Stores, all held to one contract."""
