"""What comes over HTTP, from raw bytes to an input: pure, so that whoever receives decides when.

`headers` is how a request's headers are asked for. `signatures` proves where the request comes
from, over the bytes as they came; only then is it worth looking into. `bodies` makes data of the
body and a payload of data, query and headers; `cloudevents` and `github` make events of it;
`delivery` says by what a delivery is known again when it comes twice. Nothing here reads a clock,
a store or a socket, and nothing that a sender writes raises anything but errors with a code.
"""
