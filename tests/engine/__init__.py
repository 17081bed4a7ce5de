"""The engine by behaviour, on every store."""
