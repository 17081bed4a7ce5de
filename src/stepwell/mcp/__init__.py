"""The tools of Stepwell for agents, by the Model Context Protocol: over HTTP and over stdio.

A tool is an operation, a definition of which a run is started, or one of the two of the molecule
protocol. `seat.py` says who uses them and how much they may do; `server.py` lists and calls them;
`following.py` waits for runs, and asks where they wait for a decision.
"""

from __future__ import annotations

from stepwell.mcp.http import McpApp, Resolve, mcp_app
from stepwell.mcp.seat import Manner, Seat
from stepwell.mcp.stdio import serve_stdio

__all__ = ["Manner", "McpApp", "Resolve", "Seat", "mcp_app", "serve_stdio"]
