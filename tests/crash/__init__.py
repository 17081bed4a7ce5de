"""Crashes after every commit."""
