"""All that loops or waits.

A *worker* keeps a lease, claims runs and executes each as a *program*, a coroutine with a
*context*. Whatever the program does through its context becomes changes, and all changes of
a process go through its one *writer*, which commits whatever gathered while the last commit
was under way. A program that waits is parked: written down, kept in memory for a moment in
case the wait is short, then dropped and later executed again from the top, with the journal
answering for everything that is already done.
"""

from __future__ import annotations
