"""Simulation: whole clusters in one thread, on virtual time, with faults drawn from a seed.

A *simulation* is a few *processes* — each a Stepwell with a worker — on one shared database.
Time is that of a virtual event loop, which jumps to whatever is due next. A *chaos* task
kills, freezes and cuts off processes; a *client* starts runs and sends signals, some of them
twice. At the end every run must have ended as if nothing had happened. All choices come from
one random generator, so a seed tells the whole story again.
"""

from __future__ import annotations
