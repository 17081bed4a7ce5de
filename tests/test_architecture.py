"""The shape of the code: layers, cycles, imports inside functions, file length, openings.

The rules are the tables below. Each check takes a tree and returns all of its violations,
so that the tests at the end can show that it finds them in trees made for that purpose.
"""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = "stepwell"

# Who may import whom, by the first name below the package. A unit may always import itself.
# Contracts may know each other; parts and surfaces may not.
FOUNDATION = frozenset({"errors", "kernel"})
LANGUAGE = FOUNDATION | {"graph"}
CONTRACTS = frozenset(
    {"store", "access", "record", "config", "node", "trigger", "agent", "operation", "telemetry"}
)
PARTS = frozenset({"stores", "nodes", "triggers", "agents", "operations", "engine", "telemetries"})
SURFACES = frozenset({"api", "cli", "mcp"})
BELOW_PARTS = LANGUAGE | CONTRACTS
BELOW_APP = BELOW_PARTS | PARTS | {"catalog", "sdk", "settings"}
ROOT = "__init__"  # the unit of the package itself: the public names

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "errors": frozenset(),
    "kernel": frozenset({"errors"}),
    "graph": FOUNDATION,
    **dict.fromkeys(CONTRACTS | PARTS, BELOW_PARTS),
    "settings": FOUNDATION,
    "sdk": FOUNDATION | CONTRACTS | {"settings"},
    "catalog": BELOW_PARTS | PARTS,
    "app": BELOW_APP,
    **dict.fromkeys(SURFACES, BELOW_APP | {"app"}),
    "testing": BELOW_APP | {"app", ROOT},
    ROOT: BELOW_APP | {"app"},
    "__main__": frozenset({"cli"}),
}

# (importer, imported, why the import stands inside a function); a package stands for all
# that is below it.
LAZY_IMPORTS: tuple[tuple[str, str, str], ...] = (
    ("stepwell.cli", "stepwell.app", "`stepwell --help` must not wait for the engine"),
    ("stepwell.cli", "stepwell.cli.remote", "only who talks to a server waits for HTTP"),
)

MAX_LINES = 400
MEASURED = ("src/stepwell", "tests", "benchmarks")
# Path in the repository → why this file is longer than MAX_LINES.
LONG_FILES: Mapping[str, str] = {
    "src/stepwell/errors.py": "every error in one place, a few lines each",
}


Modules = Mapping[str, ast.Module]  # by full name


@dataclasses.dataclass(frozen=True, order=True)
class Import:
    importer: str
    target: str
    line: int
    inside_function: bool
    type_only: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def load(source: Path) -> Modules:
    """All modules of the package at `source`."""
    modules = {}
    for path in python_files(source):
        parts = (PACKAGE, *path.relative_to(source).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = parse(path)
    return modules


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def python_files(folder: Path) -> list[Path]:
    """Python files below `folder`, without those of hidden folders such as environments."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def imports(modules: Modules) -> list[Import]:
    """All imports of all modules, of other packages too."""
    found = set()
    for importer, tree in modules.items():
        for node, inside_function, type_only in import_statements(tree):
            for target in targets(node, modules):
                found.add(Import(importer, target, node.lineno, inside_function, type_only))
    return sorted(found)


def import_statements(
    node: ast.AST, inside_function: bool = False, type_only: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, inside_function, type_only
        return
    inside_function = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    only_for_types = node.body if isinstance(node, ast.If) and is_type_checking(node.test) else []
    for child in ast.iter_child_nodes(node):
        yield from import_statements(child, inside_function, type_only or child in only_for_types)


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def targets(node: ast.Import | ast.ImportFrom, modules: Modules) -> Iterator[str]:
    """The imported modules; `from package import name` means the submodule if there is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert not node.level, f"line {node.lineno}: ruff bans relative imports; none is resolved here"
    package = node.module or ""
    for alias in node.names:
        submodule = f"{package}.{alias.name}"
        yield submodule if submodule in modules else package


def unit(name: str) -> str:
    _, _, below = name.partition(".")
    return below.partition(".")[0] or ROOT


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def layer_violations(modules: Modules) -> list[str]:
    unknown = [
        f"{name}: `{unit(name)}` has no row in MAY_IMPORT"
        for name in modules
        if unit(name) not in MAY_IMPORT
    ]
    return unknown + [
        f"{found}: `{unit(found.importer)}` must not import `{unit(found.target)}`"
        for found in imports(modules)
        if within(found.target, PACKAGE)
        and unit(found.importer) in MAY_IMPORT
        and unit(found.target) not in {unit(found.importer), *MAY_IMPORT[unit(found.importer)]}
    ]


def cycle_violations(modules: Modules) -> list[str]:
    """Import cycles. Imports inside functions count: they hide a cycle, they do not undo it."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for found in imports(modules):
        # The package's own are real ones: made when somebody asks for the name.
        if found.target in modules and (not found.type_only or found.importer == PACKAGE):
            graph[found.importer].add(found.target)
    violations = []
    while True:
        try:
            TopologicalSorter({name: sorted(graph[name]) for name in sorted(graph)}).prepare()
        except CycleError as error:
            cycle = error.args[1]  # each module is imported by the next
            violations.append(" → ".join(reversed(cycle)))
            graph[cycle[1]].remove(cycle[0])  # and look for the next cycle
        else:
            return violations


def lazy_import_violations(
    modules: Modules, reasons: Sequence[tuple[str, str, str]] = LAZY_IMPORTS
) -> list[str]:
    lazy = [found for found in imports(modules) if found.inside_function]

    def gives_reason(reason: tuple[str, str, str], found: Import) -> bool:
        return within(found.importer, reason[0]) and within(found.target, reason[1])

    return [
        f"{found} inside a function, and LAZY_IMPORTS gives no reason"
        for found in lazy
        if not any(gives_reason(reason, found) for reason in reasons)
    ] + [
        f"{reason[0]} does not import {reason[1]} inside a function; remove it from LAZY_IMPORTS"
        for reason in reasons
        if not any(gives_reason(reason, found) for found in lazy)
    ]


def opening_violations(repository: Path) -> list[str]:
    violations = []
    for path in measured_files(repository):
        name = path.relative_to(repository).as_posix()
        tree = parse(path)
        documented = ast.get_docstring(tree) is not None
        if not documented:
            violations.append(f"{name}: does not start with a docstring")
        code = tree.body[documented:]
        if code and ast.unparse(code[0]) != "from __future__ import annotations":
            violations.append(f"{name}: lacks `from __future__ import annotations` at its head")
    return violations


def length_violations(repository: Path, long_files: Mapping[str, str]) -> list[str]:
    lengths = {
        path.relative_to(repository).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in measured_files(repository)
    }
    too_long = {name for name, lines in lengths.items() if lines > MAX_LINES}
    return [
        f"{name}: {lengths[name]} lines, more than {MAX_LINES}"
        for name in sorted(too_long - long_files.keys())
    ] + [
        f"{name}: is not longer than {MAX_LINES} lines; remove it from LONG_FILES"
        for name in sorted(long_files.keys() - too_long)
    ]


def measured_files(repository: Path) -> list[Path]:
    return [path for folder in MEASURED for path in python_files(repository / folder)]


def assert_none(violations: list[str]) -> None:
    assert not violations, "\n".join(["", *violations])


@pytest.fixture(scope="module")
def modules() -> Modules:
    found = load(REPOSITORY / "src" / PACKAGE)
    assert PACKAGE in found, "the package was not found, so nothing would be checked"
    return found


def test_imports_point_downwards(modules: Modules) -> None:
    assert_none(layer_violations(modules))


def test_no_module_imports_itself_by_a_detour(modules: Modules) -> None:
    assert_none(cycle_violations(modules))


def test_imports_inside_functions_have_a_reason(modules: Modules) -> None:
    assert_none(lazy_import_violations(modules))


def test_every_file_opens_with_its_purpose() -> None:
    assert_none(opening_violations(REPOSITORY))


def test_files_are_short_or_say_why_not() -> None:
    assert_none(length_violations(REPOSITORY, LONG_FILES))


# The checker checked: trees that break one rule each.


def written(root: Path, files: Mapping[str, str]) -> Modules:
    for name, text in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return load(root)


LAWFUL = {
    "errors.py": "",
    "kernel/__init__.py": "from stepwell.kernel.run import Run",
    "kernel/run.py": "import json\nfrom stepwell import errors\nfrom stepwell.kernel import states",
    "kernel/states.py": "from stepwell.errors import StepwellError",
    "store.py": "from stepwell.kernel import Run",
    "stores/sqlite.py": "import stepwell.store",
    "app.py": "from stepwell import settings",
    "settings.py": "",
    "stores/postgres.py": "import asyncpg\nfrom stepwell.store import Store",
    "cli/main.py": "def f():\n    from stepwell import app\n    from stepwell.cli import remote\n",
    "cli/remote.py": "",
    "testing/simulate.py": "from stepwell import Stepwell, app, settings",
}


def test_a_lawful_tree_has_no_violations(tmp_path: Path) -> None:
    modules = written(tmp_path, LAWFUL)
    assert layer_violations(modules) == []
    assert cycle_violations(modules) == []
    assert lazy_import_violations(modules) == []


@pytest.mark.parametrize(
    ("importer", "statement", "imported"),
    [
        ("kernel/run.py", "import stepwell.store", "store"),
        ("kernel/run.py", "from stepwell.engine import worker", "engine"),
        ("kernel/run.py", "from stepwell import Stepwell", "__init__"),
        ("errors.py", "from stepwell import kernel", "kernel"),
        ("graph/check.py", "from stepwell.node import Node", "node"),
        ("node.py", "from stepwell.nodes.http import Http", "nodes"),
        ("nodes/http.py", "from stepwell.engine import context", "engine"),
        ("triggers/inbound/bodies.py", "from stepwell.engine import context", "engine"),
        ("engine/worker.py", "from stepwell.stores.sqlite import SqliteStore", "stores"),
        ("engine/worker.py", "from stepwell import settings", "settings"),
        ("sdk/workflow.py", "from stepwell.engine.worker import Worker", "engine"),
        ("app.py", "from stepwell.cli import main", "cli"),
        ("api/routes.py", "from stepwell.cli import main", "cli"),
        ("testing/simulate.py", "from stepwell.api import routes", "api"),
        ("cli/main.py", "from stepwell.testing import simulate", "testing"),
        ("store.py", "if TYPE_CHECKING:\n    from stepwell.app import Stepwell", "app"),
        ("store.py", "def f():\n    from stepwell.app import Stepwell", "app"),
    ],
)
def test_an_import_against_the_layers_is_found(
    tmp_path: Path, importer: str, statement: str, imported: str
) -> None:
    every_unit = {f"{name}.py": "" for name in ("kernel", "engine", "settings")}
    modules = written(tmp_path, {**every_unit, importer: statement})
    [violation] = layer_violations(modules)
    assert violation.endswith(f"must not import `{imported}`")


def test_a_unit_without_a_row_is_found(tmp_path: Path) -> None:
    [violation] = layer_violations(written(tmp_path, {"utils.py": "import stepwell.app"}))
    assert violation == "stepwell.utils: `utils` has no row in MAY_IMPORT"


def test_every_cycle_is_found(tmp_path: Path) -> None:
    modules = written(
        tmp_path,
        {
            "kernel/run.py": "from stepwell.kernel import states",
            "kernel/states.py": "import stepwell.kernel.run",
            "engine/__init__.py": "from stepwell.engine.worker import Worker",
            "engine/worker.py": "def f():\n    from stepwell.engine import Worker",
        },
    )
    assert cycle_violations(modules) == [
        "stepwell.engine → stepwell.engine.worker → stepwell.engine",
        "stepwell.kernel.run → stepwell.kernel.states → stepwell.kernel.run",
    ]


def test_a_cycle_for_types_alone_is_no_cycle(tmp_path: Path) -> None:
    for_types = "if TYPE_CHECKING:\n    from stepwell.kernel.states import State"
    files = {"kernel/run.py": for_types, "kernel/states.py": "import stepwell.kernel.run"}
    assert cycle_violations(written(tmp_path, files)) == []
    files["kernel/run.py"] = for_types.replace("if TYPE_CHECKING", "if True")
    assert len(cycle_violations(written(tmp_path, files))) == 1


def test_a_cycle_through_the_public_names_is_found(tmp_path: Path) -> None:
    public = "if TYPE_CHECKING:\n    from stepwell.app import Stepwell"
    files = {"__init__.py": public, "app.py": "from stepwell import Stepwell"}
    assert cycle_violations(written(tmp_path, files)) == ["stepwell → stepwell.app → stepwell"]


def test_an_import_inside_a_function_is_found(tmp_path: Path) -> None:
    hidden = "class A:\n    async def f(self):\n        if self:\n            import json\n"
    modules = written(tmp_path, {"kernel/run.py": hidden, "cli/main.py": hidden})
    violations = lazy_import_violations(modules, ())
    assert [violation.split(" inside")[0] for violation in violations] == [
        "stepwell.cli.main:4 imports json",
        "stepwell.kernel.run:4 imports json",
    ]
    assert lazy_import_violations(modules, [("stepwell.cli", "yaml", "")])[-1].startswith(
        "stepwell.cli does not import yaml"
    )


def test_a_bad_opening_is_found(tmp_path: Path) -> None:
    future = "from __future__ import annotations\n"
    tests = tmp_path / "tests"
    written(tests, {"good.py": f'"""Good."""\n{future}', "__init__.py": '"""Docstring only."""'})
    assert opening_violations(tmp_path) == []
    written(tests, {"one.py": f"# Why.\n{future}", "two.py": '"""Two."""\nimport json'})
    assert opening_violations(tmp_path) == [
        "tests/__init__.py: does not start with a docstring",
        "tests/one.py: does not start with a docstring",
        "tests/two.py: lacks `from __future__ import annotations` at its head",
    ]


def test_a_long_file_is_found_and_so_is_a_needless_exception(tmp_path: Path) -> None:
    written(tmp_path / "src/stepwell", {"long.py": "x = 1\n" * 401, "edge.py": "x = 1\n" * 400})
    written(tmp_path / "benchmarks", {".envs/lib.py": "x = 1\n" * 500})
    long, edge = "src/stepwell/long.py", "src/stepwell/edge.py"
    assert length_violations(tmp_path, {}) == [f"{long}: 401 lines, more than 400"]
    assert length_violations(tmp_path, {long: "why"}) == []
    assert length_violations(tmp_path, {long: "why", edge: "why"}) == [
        f"{edge}: is not longer than 400 lines; remove it from LONG_FILES"
    ]
