"""Small programs to read, run and copy from: `python -m examples.onboarding`."""

from __future__ import annotations
