"""Definitions as data: the language, without anything that runs it.

A *document* is what somebody drew, wrote or imported. `reading` turns text into plain data that
remembers its lines, `parse` turns that into a *definition* and notes every problem on the way,
`check` finds what is wrong with it as a whole. `compile` makes a *plan* of it: for each level of
nesting the nodes in order, and for each node the edges by which others lead to it, drawn or
implied by a reference. `decide` says from the plan and the states of nodes what happens next.
References and conditions are read once, when the plan is made, and answered from a *scope* as
the run goes on. Nothing here waits, reads or writes anything.
"""

from __future__ import annotations
