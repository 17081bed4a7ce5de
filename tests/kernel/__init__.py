"""The kernel, where nothing needs a store."""
