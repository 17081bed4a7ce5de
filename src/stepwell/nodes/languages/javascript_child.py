"""The child process that executes JavaScript: one request on its input, one reply, the end.

It is started by its path and imports nothing of Stepwell, which would take longer than the code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from importlib import import_module
from typing import Any

# Besides the heap of QuickJS, the process holds Python and copies of input and output.
_AROUND_BYTES = 192 * 1024 * 1024

# Made before the user's code could change anything; `input` and the result are out of its reach.
_DRIVER = """
((input) => {
  globalThis.input = input;
  const silent = () => {};
  globalThis.console = { log: silent, info: silent, warn: silent, error: silent, debug: silent };
  let state = "pending", value;
  const settle = async (start) => {
    try { value = await start(); state = "done"; }
    catch (error) { value = error; state = "failed"; }
  };
  const called = (it) => typeof it === "function" ? it(input) : it;
  return (part, last, main) => {
    switch (part) {
      case "script": settle(() => called(main ?? last)); return;
      case "module": settle(async () => {
        const module = await import("<input>");
        if (!("default" in module || "main" in module))
          throw "TypeError: the code is a module, and exports neither a default nor `main`";
        return called("default" in module ? module.default : module.main);
      }); return;
      case "pending": return state === "pending";
      case "output": if (state === "failed") throw value; return [value];
    }
  };
})
"""
_MAIN = "typeof main === 'function' ? main : undefined"
_NEVER = "Error: the output is a promise that nothing settles"
_NO_JSON = "TypeError: the output has no JSON form"
_LINE = re.compile(r"<input>:(\d+)")


class Failed(Exception):
    """The code failed, and what is to be said of that."""


def serve() -> None:
    """Answer the one request."""
    quickjs = _engine(sys.argv[1])
    request = json.loads(sys.stdin.buffer.readline())
    _confine(request)
    try:
        reply = b"=" + _output(quickjs, request)
    except Failed as failed:
        reply = json.dumps(failed.args[0]).encode()
    sys.stdout.buffer.write(reply + b"\n")
    sys.stdout.buffer.flush()
    os._exit(0)  # what the code has left of the engine need not be tidied up


def _engine(folder: str) -> Any:
    sys.path.append(folder)
    # Not `quickjs`, which is this with a pool of threads around it.
    return import_module("_quickjs")


def _confine(request: dict[str, Any]) -> None:
    """Let the kernel hold this process to its limits, and end it together with its worker."""
    resource, fcntl = import_module("resource"), import_module("fcntl")
    most = {
        "RLIMIT_AS": request["memory_bytes"] + _AROUND_BYTES,
        "RLIMIT_CPU": int(request["seconds"]) + 1,
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 0,  # what is open stays open; nothing else can be opened
        "RLIMIT_NPROC": 0,
    }
    for name, limit in most.items():
        # Not every system has every limit; QuickJS has its own.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    # When the worker's end of the input is closed, be it by its death, SIGIO ends this process.
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | fcntl.FASYNC)


def _output(quickjs: Any, request: dict[str, Any]) -> bytes:
    """The output as JSON."""
    context = _context(quickjs, request)
    try:
        output = _executed(quickjs, context, request)
    except quickjs.JSException as error:
        full = context.memory()["malloc_size"] > 0.9 * request["memory_bytes"]
        late = time.process_time() >= request["seconds"]
        raise Failed(_described(str(error), full, late)) from None
    except MemoryError:
        raise Failed({"failed": "memory"}) from None
    except (TypeError, ValueError, OverflowError):
        # What the binding cannot bring to Python either: a BigInt, half of a surrogate pair.
        raise Failed({"failed": "code", "message": _NO_JSON}) from None
    if len(output) > request["output_bytes"]:
        raise Failed({"failed": "output", "size": len(output)})
    return output


def _executed(quickjs: Any, context: Any, request: dict[str, Any]) -> bytes:
    code = request["code"]
    driver = context.eval(_DRIVER)(context.parse_json(request["input"]))
    if _is_script(_context(quickjs, request), quickjs, code):
        driver("script", _last(context.eval(code)), context.eval(_MAIN))
    else:
        context.module(code)
        driver("module")
    while driver("pending"):
        if not context.execute_pending_job():
            raise Failed({"failed": "code", "message": _NEVER})
    # JSON of a list, in which what JSON has nothing for is null.
    text: str = driver("output").json()
    if not text.startswith("["):  # the code has changed what lists are written as
        raise TypeError
    return text[1:-1].encode()


def _last(value: Any) -> Any:
    # Numbers that large are floats; this was a BigInt, and would go back as a number.
    if isinstance(value, int) and abs(value) >= 2**31:
        raise TypeError
    return value


def _context(quickjs: Any, request: dict[str, Any]) -> Any:
    context = quickjs.Context()
    context.set_memory_limit(request["memory_bytes"])
    context.set_time_limit(request["seconds"])
    return context


def _is_script(context: Any, quickjs: Any, code: str) -> bool:
    """Whether the code can be read as a script; only a module has exports.

    It is read as a whole before any of it is executed, which ends at once.
    """
    try:
        context.eval(f"throw 0;{code}")
    except quickjs.JSException as error:
        return not str(error).startswith("SyntaxError")
    return True


def _described(error: str, full: bool, late: bool) -> dict[str, Any]:
    """What is said of an error that QuickJS gives as its text and the calls it came through."""
    message, _, calls = error.partition("\n    at ")
    found = _LINE.search(calls)
    line = int(found[1]) if found else None
    # What is not an Error has no calls; `undefined` stands in their place.
    message = message.removesuffix("\nundefined").strip()
    # When there is no memory for an error, null is thrown; also when time was up between two jobs.
    if message == "InternalError: out of memory" or (full and message == "null"):
        return {"failed": "memory", "line": line}
    if message == "InternalError: interrupted" or (late and message == "null"):
        return {"failed": "time", "line": line}
    return {"failed": "code", "message": message[:4000], "line": line}


if __name__ == "__main__":
    serve()
