"""What people write workflows with, and talk to a server with."""

from __future__ import annotations
