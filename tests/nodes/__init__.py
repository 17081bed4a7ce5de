"""Node types, each by itself."""
