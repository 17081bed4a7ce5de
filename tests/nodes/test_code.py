"""The node type `code`: what it computes, in both languages, and how code fails."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from typing import Any

import pytest

from stepwell.errors import CodeFailed, ConfigInvalid, SandboxUnavailable
from stepwell.graph.problems import Problems
from stepwell.nodes.code import code
from stepwell.nodes.languages import javascript
from stepwell.nodes.languages import python as monty
from tests.nodes.support import executed

LANGUAGES = ["python", "javascript"]


async def output(language: str, text: str, given: Any = None) -> Any:
    return await executed(code, {"language": language, "code": text, "input": given})


async def failure(language: str, text: str) -> CodeFailed:
    with pytest.raises(CodeFailed) as caught:
        await output(language, text, {"n": 1})
    return caught.value


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "def main(input):\n    return {'n': input['n'] + 1}"),
        ("python", "async def main(input):\n    return {'n': input['n'] + 1}"),
        ("python", "{'n': input['n'] + 1}"),
        ("python", "n = input['n']\n{'n': n + 1}"),
        ("py", "{'n': input['n'] + 1}"),
        ("javascript", "export default function(input) { return {n: input.n + 1} }"),
        ("javascript", "export default async function(input) { return {n: await input.n + 1} }"),
        ("javascript", "export default (input) => ({n: input.n + 1})"),
        ("javascript", "function add(input) { return {n: input.n + 1} }\nexport default add"),
        ("javascript", "export function main(input) { return {n: input.n + 1} }"),
        ("javascript", "const one = await 1\nexport default ({n}) => ({n: n + one})"),
        ("javascript", "function main(input) { return {n: input.n + 1} }"),
        ("javascript", "const main = async (input) => ({n: input.n + 1})"),
        ("javascript", "(input) => ({n: input.n + 1})"),
        ("javascript", "const n = input.n; ({n: n + 1})"),
        ("javascript", "Promise.resolve(input.n).then(n => ({n: n + 1}))"),
        ("js", "({n: input.n + 1})"),
    ],
)
async def test_code_turns_its_input_into_an_output(language: str, text: str) -> None:
    assert await output(language, text, {"n": 41}) == {"n": 42}


async def test_code_is_python_and_its_input_an_empty_object_if_nothing_else_is_said() -> None:
    assert await executed(code, {"code": "[input, type(input).__name__]"}) == [{}, "dict"]


VALUES = [None, False, 0, "", [], {}, 1.5, -7, 2**40, "é€😀\n\x00", {"a": [1, {"__proto__": None}]}]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_values_pass_through_as_they_are(language: str) -> None:
    assert await output(language, "input", VALUES) == VALUES
    [*given] = await output(language, "input", [False, 0])
    assert [type(each) for each in given] == [bool, int]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "x = 1"),
        ("python", "def main(input):\n    pass"),
        ("python", ""),
        ("javascript", "let x = 1"),
        ("javascript", "export default () => undefined"),
        ("javascript", ""),
    ],
)
async def test_code_that_returns_nothing_has_null_for_its_output(language: str, text: str) -> None:
    assert await output(language, text) is None


async def test_tuples_become_lists_and_keys_become_texts() -> None:
    assert await output("python", "(1, {2: (3,)})") == [1, {"2": [3]}]


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "{1, 2}", "TypeError: Object of type set is not JSON serializable"),
        ("python", "def main(input):\n    return lambda: 1", "TypeError: Object of type function"),
        ("python", "def f(): pass\nf", "TypeError: the last expression has no JSON form"),
        ("python", "class A: pass\nA()", "TypeError: the last expression has no JSON form"),
        ("python", "float('nan')", "ValueError: Out of range float"),
        ("javascript", "10n", "TypeError: the output has no JSON form"),
        ("javascript", "10n ** 40n", "TypeError: the output has no JSON form"),
        ("javascript", "export default () => 10n", "TypeError: BigInt"),
        ("javascript", "const a = {}; a.a = a; a", "TypeError: circular"),
        ("javascript", "'\\ud800'", "TypeError: the output has no JSON form"),
        ("javascript", "export default '\\ud800'", "The output of the code cannot be read"),
        ("javascript", "new Promise(() => {})", "Error: the output is a promise that nothing"),
        ("javascript", "export const a = 1", "TypeError: the code is a module, and exports nei"),
    ],
)
async def test_an_output_without_a_json_form_is_an_error(
    language: str, text: str, message: str
) -> None:
    assert str(await failure(language, text)).startswith(message)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "\n1 / 0", "ZeroDivisionError: division by zero (line 2 of the code)"),
        ("python", "def main(input):\n    return f()\n\ndef f():\n    raise KeyError('k')",
         "KeyError: k (line 5 of the code)"),
        ("python", "async def main(input):\n    return input['x']",
         "KeyError: x (line 2 of the code)"),
        ("python", "x = 1\nx +", "SyntaxError: Expected an expression (line 2 of the code)"),
        ("python", "def main():\n    pass",
         "TypeError: main() takes 0 positional arguments but 1 was given"),
        ("javascript", "\nnull.x",
         "TypeError: cannot read property 'x' of null (line 2 of the code)"),
        ("javascript", "export default (input) => {\n  throw new RangeError('no')\n}",
         "RangeError: no (line 2 of the code)"),
        ("javascript", "export default async () => {\n  await 1\n  nowhere\n}",
         "ReferenceError: nowhere is not defined (line 3 of the code)"),
        ("javascript", "let x = 1\nlet y = }",
         "SyntaxError: unexpected token in expression: '}' (line 2 of the code)"),
        ("javascript", "throw 'a text'", "a text"),
    ],
)  # fmt: skip
async def test_an_error_is_reported_with_its_type_and_line(
    language: str, text: str, message: str
) -> None:
    error = await failure(language, text)
    assert str(error) == message
    line = re.search(r"line (\d+)", message)
    assert error.details["line"] == (int(line[1]) if line else None)


@pytest.mark.parametrize(
    "text",
    [
        "export default function(input: any): string { return input.a }",
        "interface Input {\n  a: string;\n}\nexport default function(input) { return input.a }",
        "const x = input as any; x",
    ],
)
async def test_typescript_is_refused_with_the_advice_to_remove_types(text: str) -> None:
    error = await failure("javascript", text)
    assert str(error).startswith("SyntaxError")
    assert "plain JavaScript is wanted" in str(error)


async def test_a_long_message_is_cut() -> None:
    for language, text in [
        ("python", "raise ValueError('x' * 100_000)"),
        ("javascript", "throw new Error('x'.repeat(100_000))"),
    ]:
        assert len(str(await failure(language, text))) < 3000


async def test_what_is_printed_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert await output("python", "print('a', 'b', sep='-', end='')\n1") == 1
    assert await output("javascript", "console.log('a', {}); console.error('b'); 1") == 1
    assert capfd.readouterr() == ("", "")


async def test_sleeping_takes_no_time() -> None:
    assert await output("python", "import time\ntime.sleep(1000)\n1") == 1


async def test_nothing_is_left_for_the_next_call() -> None:
    await output("python", "import json\nleft = 1")
    assert "NameError" in str(await failure("python", "left"))
    await output("javascript", "globalThis.left = Object.prototype.left = 1")
    assert await output("javascript", "[typeof left, ({}).left]") == ["undefined", None]


async def test_another_language_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="'python' or 'javascript'"):
        await output("ruby", "1")


async def test_references_in_code_are_code() -> None:
    assert code.verbatim == {"code"}
    assert await output("python", "'{{ input.n }}'") == "{{ input.n }}"
    problems = Problems()
    code.check({"code": "'@x'", "language": "js"}, "nodes[0].config", problems)
    assert not problems.found


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(monty, "import_module", missing)
    monkeypatch.setattr(javascript, "find_spec", lambda name: None)
    assert importlib.util.find_spec("_quickjs") is not None
    for language in LANGUAGES:
        with pytest.raises(SandboxUnavailable, match=r"pip install 'stepwell\[code\]'"):
            await output(language, "1")


def test_a_process_that_executes_no_code_loads_no_engine(python: str) -> None:
    loaded = subprocess.run(
        [python, "-c", "import sys, stepwell.nodes.code; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not {"pydantic_monty", "quickjs", "_quickjs"} & set(loaded.stdout.split())
