"""The languages of `code` nodes: how each is executed, apart from the worker and within limits.

Both engines have processes of their own, one for each call, so that nothing of one call is left
for the next and a crash takes nothing with it. `python` hands the code to Monty, an interpreter
that knows no files, no network and no environment. `javascript` starts `javascript_child`, in
which QuickJS executes the code. Either way the output comes back as JSON text of limited size.
"""

from __future__ import annotations
