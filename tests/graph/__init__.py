"""The language of graphs, without anything that runs it."""
