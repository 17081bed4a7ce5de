"""Small definitions that a new store begins with."""
