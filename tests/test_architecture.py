"""The arrows of ARCHITECTURE.md, held: who may import what, and what stands nowhere.

Read from the source with `ast`, nothing is imported; the table of what may be done is
at the top, so that a change of mind is a change of one line here and a paragraph there.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("gmr", "core", "service", "clients", "benchmarks")

CORE_LIBRARIES = {"torch", "safetensors", "cattrs"}
CORE_COMPILED = {
    "core.compiled",
    "core.density.factors.density",
    "core.density.factors.outline",
    "core.density.factors.refining",
    "core.density.reach",
    "core.drift.sequential",
    "core.experts.forest",
    "core.experts.growing",
    "core.experts.moments",
    "core.experts.nearest",
    "core.experts.neighbours",
    "core.experts.opinions",
    "core.experts.share",
    "core.memory.class_shares",
    "core.memory.feature_sums",
    "core.memory.fingerprints",
    "core.memory.reliability",
    "core.memory.tallies",
}
"""What is done sample by sample: numpy, compiled by numba."""

CORE_OPTIONAL = {"core.drift.baselines.river": {"river"}}
"""Imported when a detector of that library is chosen, and at no other time."""

CORE_KEPT = {
    "core.compiled.kept": {"hashlib", "pathlib"},
    "core.engine.checkpoint": {"threading"},
    "core.engine.rounding": {"warnings"},
    "core.extensions": {"importlib"},
}
"""What numba keeps is files, and so is what an installation offers; what reads and writes
checkpoints is kept by each thread for itself. What a cast loses is no error."""

CORE_STANDARD_LIBRARY = {
    "__future__",
    "abc",
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "json",
    "math",
    "types",
    "typing",
    "zlib",
}
"""No clock, no environment, no file, no socket, no logging, no randomness of its own."""

VOCABULARY = {
    f"core.{name}"
    for name in (
        "batch",
        "class_merge",
        "config",
        "counted",
        "errors",
        "events",
        "extensions",
        "precision",
        "running",
        "standardiser",
        "tensors",
    )
}
"""Imports nothing of core but each other."""

CORE_ROOMS: dict[str, set[str]] = {
    # A room, and the rooms that it imports from besides the vocabulary.
    "core.compiled": set(),
    "core.density": {"core.compiled"},
    "core.density.deep": {"core.density"},
    "core.density.diagonal": {"core.density"},
    "core.density.factors": {"core.compiled", "core.density", "core.density.diagonal"},
    "core.drift": {"core.density", "core.model"},
    "core.drift.baselines": {"core.drift"},
    "core.drift.sequential": {"core.compiled", "core.density", "core.drift", "core.model"},
    "core.engine": {
        "core.compiled",
        "core.density",
        "core.density.deep",
        "core.density.diagonal",
        "core.density.factors",
        "core.drift",
        "core.drift.baselines",
        "core.drift.sequential",
        "core.experts",
        "core.learners",
        "core.learners.per_class",
        "core.learners.sgd",
        "core.memory",
        "core.model",
        "core.outliers",
        "core.snapshot",
    },
    "core.experts": {"core.compiled"},
    "core.learners": {"core.density", "core.model"},
    "core.learners.per_class": {
        "core.density",
        "core.density.deep",
        "core.density.diagonal",
        "core.density.factors",
        "core.learners",
        "core.model",
    },
    "core.learners.sgd": {
        "core.density",
        "core.density.deep",
        "core.density.diagonal",
        "core.learners",
        "core.model",
    },
    "core.memory": {"core.compiled", "core.model"},
    "core.model": {
        "core.density",
        "core.density.deep",
        "core.density.diagonal",
        "core.density.factors",
    },
    "core.outliers": {"core.density", "core.model"},
    "core.snapshot": {
        "core.density",
        "core.density.deep",
        "core.experts",
        "core.model",
        "core.outliers",
    },
}

NAMES_THE_CHOICES = {"core.engine.detectors", "core.engine.learners", "core.engine.warm_up"}
"""The registries, which alone may name one detector or learner."""

CHOICES = {
    "core.drift.sequential",
    "core.drift.baselines",
    "core.learners.per_class",
    "core.learners.sgd",
}

CLIENTS_MAY = {"core.counted", "core.errors", "core.precision", "service.wire"}
STARTS_THE_SERVICE = {
    "clients.commands.cluster",
    "clients.commands.serving",
    "clients.commands.upkeep",
}
"""Commands that are the service, or look after it from outside: they read its settings, and
import the rest when they run."""

PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
RANDOM = {
    "bernoulli",
    "multinomial",
    "normal",
    "normal_",
    "rand",
    "randint",
    "randn",
    "randperm",
    "uniform_",
}


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Every Python file of some folders."""
    found = tuple(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    assert found
    return found


def name_of(path: Path) -> str:
    """`core/drift/baselines/paper.py` -> `core.drift.baselines.paper`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    gc.disable()  # looking for garbage among nodes that stay takes longer than parsing
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        gc.enable()


def is_module(name: str) -> bool:
    """Whether a dotted name of ours is a file or a folder."""
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def imported(nodes: list[ast.AST], importer: str) -> Iterator[str]:
    """Dotted names of the modules that these nodes import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer} imports relatively: write the name in full"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                ours = node.module.split(".")[0] in OURS
                yield whole if ours and is_module(whole) else node.module


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


@cache
def imports(path: Path) -> frozenset[str]:
    """Everything that a file imports, wherever it stands."""
    return frozenset(imported(nodes_of(path), name_of(path)))


def imports_on_import(path: Path) -> set[str]:
    """What is imported when the file is: all but what stands in functions."""

    def outside(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield child
                yield from outside(child)

    return set(imported(list(outside(tree_of(path))), name_of(path)))


def room(name: str, rooms: dict[str, set[str]]) -> str | None:
    """The entry of a table that a module falls under."""
    return next((key for key in rooms if name == key or name.startswith(key + ".")), None)


def within(name: str, allowed: set[str]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in allowed)


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def every_file_of(*folders: str) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Makes one test of a rule for files: it fails with every file that breaks the rule."""

    def as_test(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = {}
            for path in sources(*folders):
                try:
                    rule(path)
                except AssertionError as error:
                    broken[names(path)] = str(error)
            assert not broken

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return as_test


# Who imports whom -------------------------------------------------------------------------


@every_file_of("core")
def test_core_imports_its_three_libraries_and_a_harmless_part_of_the_standard_one(
    path: Path,
) -> None:
    tops = {name.split(".")[0] for name in imports(path)}
    optional = CORE_OPTIONAL.get(name_of(path), set())
    tops -= {"numpy", "numba"} if within(name_of(path), CORE_COMPILED) else set()
    tops -= CORE_KEPT.get(name_of(path), set())
    assert tops <= {"core"} | CORE_LIBRARIES | CORE_STANDARD_LIBRARY | optional
    assert not {name for name in imports_on_import(path) if name.split(".")[0] in optional}


def room_of(name: str) -> str:
    """The folder of a module of core, two deep at most; a file beside the folders is its own."""
    parts = name.split(".")
    folder = ROOT.joinpath(*parts).is_dir()
    return ".".join((parts if folder or len(parts) == 2 else parts[:-1])[:3])


def rooms_used() -> dict[str, set[str]]:
    """For each room of core but the vocabulary, the rooms that it imports from."""
    used: dict[str, set[str]] = {}
    for path in sources("core"):
        own = room_of(name_of(path))
        if own != "core" and own not in VOCABULARY:
            inside = {room_of(name) for name in imports(path) if name.startswith("core.")}
            used.setdefault(own, set()).update(inside - VOCABULARY - {own})
    return used


@pytest.mark.parametrize("name", sorted(VOCABULARY))
def test_the_vocabulary_imports_nothing_of_core_but_itself(name: str) -> None:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    assert {one for one in imports(path) if one.startswith("core.")} <= VOCABULARY


def test_within_core_every_arrow_is_in_the_table_and_every_one_of_the_table_is_there() -> None:
    assert rooms_used() == CORE_ROOMS


def test_rooms_of_core_stand_on_floors_and_no_two_lean_on_each_other() -> None:
    floors: dict[str, int] = {}
    rooms = dict(CORE_ROOMS)
    while rooms:
        standing = {room for room, below in rooms.items() if below <= floors.keys()}
        assert standing, f"a circle among {sorted(rooms)}"
        for room in standing:
            floors[room] = 1 + max((floors[below] for below in CORE_ROOMS[room]), default=0)
            del rooms[room]
    assert len(floors) + len({"the vocabulary"}) <= 18
    assert max(floors.values()) <= 8


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not for the sake of types either: what names another is read after it."""
    TopologicalSorter({name_of(path): imports(path) for path in sources(*OURS)}).prepare()


@every_file_of("core/engine")
def test_the_engine_knows_no_detector_and_no_learner_by_name(path: Path) -> None:
    if name_of(path) not in NAMES_THE_CHOICES:
        assert not {name for name in imports(path) if within(name, CHOICES)}


@every_file_of("service")
def test_the_service_does_not_know_its_clients(path: Path) -> None:
    assert not {name for name in imports(path) if within(name, {"clients", "benchmarks", "tests"})}


@every_file_of("gmr")
def test_the_face_knows_core_and_clients_and_not_the_service(path: Path) -> None:
    ours = {one for one in imports(path) if one.split(".")[0] in OURS}
    assert all(within(one, {"gmr", "core", "clients"}) for one in ours), ours


@every_file_of("core", "service", "clients")
def test_nothing_of_ours_looks_at_its_own_face(path: Path) -> None:
    assert not {name for name in imports(path) if within(name, {"gmr"})}


@every_file_of("clients")
def test_clients_know_the_errors_and_the_wire_and_speak_http(path: Path) -> None:
    name = name_of(path)
    allowed = CLIENTS_MAY | {"clients"}
    if name in STARTS_THE_SERVICE:
        allowed = allowed | {"service"}
    ours = {one for one in imports(path) if one.split(".")[0] in OURS}
    assert all(within(one, allowed) for one in ours), ours
    assert not {one for one in imports(path) if one.split(".")[0] in ("torch", "redis")}


@pytest.mark.parametrize("name", sorted(STARTS_THE_SERVICE))
def test_what_starts_the_service_imports_its_settings_at_once_and_the_rest_when_run(
    name: str,
) -> None:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    at_once = {one for one in imports_on_import(path) if within(one, {"service", "core"})}
    assert at_once <= CLIENTS_MAY | {"service.settings"}
    # Nobody else imports it: the command line names it and imports it when it is run.
    others = [other for other in sources("clients") if other != path]
    assert not [other for other in others if name in imports(other)]


def test_what_clients_share_with_the_service_loads_without_torch() -> None:
    """In a process of its own, since this one has torch already."""
    script = (
        "import sys, core.errors, service.wire, clients.http.client, clients.commands.cli\n"
        "heavy = {'torch', 'redis', 'fastapi', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["core", "service"])
def test_packages_that_clients_reach_into_hold_a_docstring_alone(name: str) -> None:
    """Else importing `core.errors` would import whatever stands there."""
    [only] = ast.parse((ROOT / name / "__init__.py").read_text()).body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)


# What stands nowhere ----------------------------------------------------------------------


def calls(path: Path) -> Iterator[tuple[str, str, ast.Call]]:
    """Every call: what it is called on (a name, or empty), the function's name, the call."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                yield "", called.id, node
            elif isinstance(called, ast.Attribute):
                on = called.value.id if isinstance(called.value, ast.Name) else ""
                yield on, called.attr, node


@every_file_of(*OURS)
def test_nothing_is_pickled_and_nothing_unpickled(path: Path) -> None:
    assert not {name for name in imports(path) if name.split(".")[0] in PICKLES}
    for on, function, call in calls(path):
        assert (on, function) not in {("torch", "load"), ("torch", "save")}
        for keyword in call.keywords:
            if keyword.arg == "allow_pickle":
                assert isinstance(keyword.value, ast.Constant)
                assert keyword.value.value is False


@every_file_of("tests")
def test_tests_take_copies_and_pickle_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if any(name in text for name in PICKLES):  # parsed, and kept parsed, where it might be
        assert not {name for name in imports(path) if name.split(".")[0] in PICKLES}


@every_file_of("core")
def test_core_reads_no_file_prints_nothing_and_runs_no_text(path: Path) -> None:
    forbidden = {"open", "print", "input", "eval", "exec", "compile", "__import__"}
    assert not {function for on, function, _ in calls(path) if not on and function in forbidden}


@every_file_of("core")
def test_core_draws_no_random_number_without_a_generator(path: Path) -> None:
    for _, function, call in calls(path):
        if function in RANDOM:
            given = {keyword.arg for keyword in call.keywords}
            assert "generator" in given, f"line {call.lineno}: {function} without a generator"
        assert function not in {"seed", "initial_seed", "rand_like", "randn_like", "randint_like"}
    for on, function, call in calls(path):
        seeds_all = (on, function) == ("torch", "manual_seed")
        assert not seeds_all, f"line {call.lineno}: the seed of everybody"


@every_file_of(*OURS)
def test_every_module_says_what_it_is(path: Path) -> None:
    tree = tree_of(path)
    if path.name == "__init__.py" and not tree.body:
        return
    assert ast.get_docstring(tree), "a module begins with what it is and the rules it keeps"


@every_file_of("core")
def test_every_public_class_of_core_says_what_it_is(path: Path) -> None:
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


@every_file_of(*OURS, "tests")
def test_no_file_is_a_drawer_for_odds_and_ends(path: Path) -> None:
    drawers = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}
    assert path.stem not in drawers
    assert not drawers & set(path.relative_to(ROOT).parts)


@every_file_of(*OURS, "tests")
def test_nothing_is_left_to_be_done_in_a_comment(path: Path) -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X:")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        assert not any(mark in line for mark in marks), f"line {number}: open an issue instead"
