"""The definitions in `examples/`, by the commands that their README gives."""
