"""One module per engine, each run by that engine's own interpreter."""
