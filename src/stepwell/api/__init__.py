"""HTTP: routes made from operations, and what only a server has.

A request passes the *guard* (sizes, hosts, request ids, headers of answers), is led by the *routes*
to an operation or to one of the few pages that are none, is told who asks by the *gatehouse*, and
has its arguments read from path, query, headers and body as the operation's signature says. What an
operation raises becomes a problem by the one table in `problems`. The OpenAPI document is made of
the same declarations, so what is documented is what is answered.
"""
