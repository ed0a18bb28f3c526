"""The share of small faults in the code that its tests find.

    nice python bench/mutants.py --jobs 2               # 100 faults in five areas, about an hour
    python bench/mutants.py --area splits --list        # only says which faults would be made
    nice python bench/mutants.py --before bench/mutants-before.json  # beside the figures of an earlier run

A fault (a mutant) is one change of the syntax tree: an operator turned, a constant or an index moved by one, a condition negated,
a `return`, `break` or `continue` dropped, an order reversed, a name that is still needed bound anew in a loop, or a list made
lazily. It is made in a copy of the checkout, and its area's tests run there, the module's first, until one fails, and fails again
alone: on a busy machine some do by themselves. Tests that take far longer than without a fault have found it too.

The choice is a hash of area, function, kind of fault and its place among those of the function, not of file and line: where code
moves or goes, the faults in what stays are the same ones. Messages, log lines, annotations and assertions have none.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from common import header

ROOT = Path(__file__).resolve().parent.parent
SPLITS = ("headway/tabular/splits.py", "headway/tabular/hashing.py", "headway/leakage")
GATE = tuple(f"headway/evaluation/{name}.py" for name in ("gate", "tolerance", "predictions"))
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "statistics": (("headway/statistics",), ("tests/headway/statistics",)),
    "splits": (SPLITS, ("tests/headway/tabular", "tests/headway/leakage", "tests/beam_jobs/test_leakage_check.py")),
    "store": (("headway/storage",), ("tests/headway/storage",)),
    "registry": (("headway/registry",), ("tests/headway/registry",)),
    "gate": (
        ("headway/evaluation/gate.py", "headway/evaluation/tolerance.py", "headway/evaluation/predictions.py"),
        ("tests/headway/evaluation",),
    ),
}
"""The modules and the tests of each area: files, folders or patterns."""
MARKS = "not (long or server or chaos or soak or flink or spark or browser)"
FOREIGN = 70
INVALID = {5: "no test ran", FOREIGN: "modules of another checkout were imported"}

KINDS = ("operator", "condition", "constant", "rebind", "index", "jump", "order", "lazy")
TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
WORDS = r"(log|logger|logging|warnings|monitor)\.\w+|([\w.]*\.)?\w*(Error|Warning)|print|cast"
BEYOND = r"([\w.]*\.)?(kill|killpg|rmtree|remove|unlink|sleep)"
"""Calls that stay as they are: of words for people and types; where a fault would reach beyond the copy, or only take time."""
PLUGIN = """
import contextlib, resource, sys
def pytest_configure():
    for limit, most in ((resource.RLIMIT_DATA, 8 << 30), (resource.RLIMIT_FSIZE, 4 << 30)):  # of what grows without end
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, most))
    from hypothesis import Phase, settings
    settings.register_profile("without shrinking", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("without shrinking")

def pytest_sessionfinish(session):
    modules = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] in {packages!r}]
    if not all(str(module.__file__).startswith({copy!r}) for module in modules if getattr(module, "__file__", None)):
        session.exitstatus = {code}
"""


@dataclass(frozen=True)
class Fault:
    """A field of a node of a syntax tree, and what it becomes."""

    kind: str
    function: str
    shown: Any
    """The statement or expression that becomes another, for people."""
    node: Any
    field: str
    value: Any


def faults(node: Any, scope: tuple[str, ...] = (), function: Any = None) -> Iterator[Fault]:
    """Every fault that can be made below a node, within functions."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.Call) and re.fullmatch(f"{WORDS}|{BEYOND}", ast.unparse(node.func)):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = (*scope, node.name)
        function = None if isinstance(node, ast.ClassDef) else node
    for kind, *changed in _of_node(node, function) if function else ():
        yield Fault(kind, ".".join(scope), *changed)
    left_out = ("annotation", "returns", "decorator_list", "args" if node is function else "")
    for child in (child for name, value in ast.iter_fields(node) if name not in left_out for child in _listed(value)):
        if not (isinstance(node, ast.Subscript | ast.Slice) and isinstance(child, ast.Constant)):
            yield from faults(child, scope, function)


def _listed(field: Any) -> list[ast.AST]:
    return [node for node in (field if isinstance(field, list) else [field]) if isinstance(node, ast.AST)]


def _of_node(node: Any, function: Any) -> Iterator[tuple[str, Any, Any, str, Any]]:
    """(kind, what is shown, changed node, its field, new value) of the faults of one node."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str())) | ast.BinOp(right=ast.Constant(value=str()) | ast.JoinedStr()):
            pass  # of texts and paths
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in TURNED:
            yield "operator", node, node, "op", TURNED[type(node.op)]()
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield "operator", node, node, "ops", [*ops[:i], TURNED[type(op)](), *ops[i + 1 :]]
        case ast.If() | ast.While() | ast.IfExp():
            yield "condition", node, node, "test", ast.UnaryOp(ast.Not(), node.test)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for part in node.generators:
                for i, test in enumerate(part.ifs):
                    ifs = [*part.ifs[:i], ast.UnaryOp(ast.Not(), test), *part.ifs[i + 1 :]]
                    yield "condition", node, part, "ifs", ifs
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            yield "constant", node, node, "value", value + 1
        case ast.Subscript(slice=ast.Constant(value=int() as value) as index):
            yield "index", node, index, "value", value + 1
        case ast.Subscript(slice=index):
            for part in index.elts if isinstance(index, ast.Tuple) else [index]:
                for end in ("lower", "upper"):
                    if bound := getattr(part, end, None):
                        yield "index", node, part, end, ast.BinOp(bound, ast.Add(), ast.Constant(1))
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield "order", node, node, "func", ast.Name({"min": "max", "max": "min"}[name], ast.Load())
        case ast.Call(func=ast.Name(id="sorted") | ast.Attribute(attr="sort")):
            kept = [keyword for keyword in node.keywords if keyword.arg != "reverse"]
            reverse = [] if len(kept) < len(node.keywords) else [ast.keyword("reverse", ast.Constant(True))]
            yield "order", node, node, "keywords", kept + reverse
        case ast.Assign(value=ast.ListComp() as made):
            yield "lazy", node, node, "value", ast.GeneratorExp(made.elt, made.generators)
        case ast.For() if (old := next(_names(node.target, ast.Store), None)) and (name := _needed(function, node)):
            anew = ast.Assign([ast.Name(name, ast.Store())], ast.Name(old, ast.Load()), lineno=node.lineno)
            yield "rebind", node, node, "body", [anew, *node.body]
    for block in ("body", "orelse", "finalbody"):
        statements = _listed(getattr(node, block, None))
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.Return | ast.Break | ast.Continue) and statement is not function.body[-1]:
                yield "jump", statement, node, block, [*statements[:i], ast.Pass(), *statements[i + 1 :]]


def _names(tree: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    return (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context))


def _needed(function: ast.AST, loop: ast.For) -> str | None:
    """A name that is bound before a loop and read in it or later: one that a generator reads, else the one bound last."""
    nodes = [n for n in ast.walk(function) if hasattr(n, "lineno")]
    before = [n for n in nodes if n.lineno < loop.lineno]
    bound = {n.arg: n.lineno for n in before if isinstance(n, ast.arg) and n.arg not in ("self", "cls")}
    bound |= {n.id: n.lineno for n in before if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read_at_once = {part for n in before if isinstance(n, ast.Call) for part in n.args}  # all(...), sorted(...)
    waiting = [n for n in before if isinstance(n, ast.GeneratorExp) and n not in read_at_once]
    lazily = {name for generator in waiting for name in _names(generator, ast.Load)}
    later = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.lineno > loop.lineno}
    own = [loop.target, *loop.body, *(n.target for n in ast.walk(function) if isinstance(n, ast.comprehension))]
    possible = (bound.keys() & (lazily | later)) - {name for part in own for name in _names(part, ast.Store)}
    return max(possible, key=lambda name: (name in lazily, bound[name], name), default=None)


@dataclass(frozen=True)
class Mutant:
    area: str
    module: str
    source: str
    number: int
    """The place of the fault among those of the module."""
    name: str
    """The same wherever the function stands."""

    def made(self) -> tuple[str, str]:
        """The module's text with the fault, and the fault in words."""
        tree = ast.parse(self.source)
        fault = [*faults(tree)][self.number]
        before, line = _head(fault.shown), fault.shown.lineno
        setattr(fault.node, fault.field, fault.value)
        change = "dropped" if fault.kind == "jump" else f"-> {_head(fault.shown)}"
        within = f"   in {self.source.splitlines()[line - 1].strip()}" if fault.kind == "constant" else ""
        words = f"{self.module}:{line} {fault.kind}: {before} {change}{within}"
        return ast.unparse(ast.fix_missing_locations(tree)), words


def _head(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) < 100 else f"{text[:97]}..."


def files(root: Path, patterns: Sequence[str], names: str = "*.py") -> list[Path]:
    found = [path for pattern in patterns for path in root.glob(pattern)]
    return sorted({file for path in found for file in ([path] if path.is_file() else path.rglob(names))})


def chosen(root: Path, area: str, count: int, seed: int) -> list[Mutant]:
    """Mutants of an area, of each kind in turn."""
    found: dict[str, list[tuple[bytes, Mutant]]] = {kind: [] for kind in KINDS}
    seen = Counter[str]()
    for path in files(root, AREAS[area][0]):
        module, source = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        for number, fault in enumerate(faults(ast.parse(source))):
            function = f"{area} {fault.function} {fault.kind}"
            mutant = Mutant(area, module, source, number, f"{function} {seen[function]}")
            seen[function] += 1
            found[fault.kind].append((hashlib.sha256(f"{seed} {mutant.name}".encode()).digest(), mutant))
    drawn = [sorted(found[kind], key=lambda pair: pair[0]) for kind in KINDS]
    return [pair[1] for turn in zip_longest(*drawn) for pair in turn if pair][:count]


class Copy:
    """A copy of the checkout, in which one mutant at a time is tested."""

    def __init__(self, root: Path, folder: Path):
        self.folder, self.root = folder, folder / "tree"
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        for name in subprocess.check_output(command, cwd=root, text=True).splitlines():
            if (root / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, self.root / name)
        packages = [path.parent.name for path in self.root.glob("*/__init__.py")]
        plugin = PLUGIN.format(packages=packages, copy=f"{self.root}/", code=FOREIGN)
        (folder / "beside_a_mutant.py").write_text(plugin, encoding="utf-8")

    def write(self, module: str, text: str) -> None:
        path = self.root / module
        path.write_text(text, encoding="utf-8")
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):  # two texts of one size and second look the same
            stale.unlink()

    def fails(self, area: str, module: str = "", *, limit: float = 3600, runner: Sequence[str] = ()) -> str | None:
        """Run an area's tests until one fails that fails again, alone: its name, or None."""
        named, imported = f"test_{Path(module).stem}.py", module.removesuffix(".py").replace("/", ".")
        tests = files(self.root, AREAS[area][1], "test_*.py")
        tests.sort(key=lambda path: (path.name != named, imported not in path.read_text(encoding="utf-8")))
        every = [*map(str, tests)]
        while failed := self._pytest(every, limit, runner):  # or ended by a signal of somebody else's
            if failed == "the time limit" or self._pytest([failed] if "::" in failed else every, limit, runner):
                return failed
            every += ["--deselect", failed]
        return None

    def _pytest(self, tests: Sequence[str], limit: float, runner: Sequence[str]) -> str | None:
        options = ["-x", "-q", "-p", "beside_a_mutant", "-p", "no:cacheprovider", "--timeout", "120", "-m"]
        command = [sys.executable, *runner, "-m", "pytest", *options, MARKS, *tests]
        (temporary := self.folder / "tmp").mkdir()
        env = os.environ | {"PYTHONPATH": f"{self.root}:{self.folder}", "TMPDIR": str(temporary)}
        env |= {"PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        with (self.folder / "log").open("w+b") as out:
            child = subprocess.Popen(command, cwd=self.root, env=env, stdout=out, stderr=out, start_new_session=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(limit)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # with what the tests have started
            code = child.wait()
            out.seek(0)
            said = out.read().decode(errors="replace")
        shutil.rmtree(temporary, ignore_errors=True)
        if code in INVALID:
            raise RuntimeError(f"{INVALID[code]}: {said[-2000:]}")
        failed = [*re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE), f"{said[-2000:]} (exit {code})"]
        return {0: None, -signal.SIGKILL: "the time limit"}.get(code, failed[0])


def run(root: Path, mutants: Sequence[Mutant], jobs: int) -> dict[Mutant, bool]:
    """Return whether each mutant is killed."""
    limits: dict[str, float] = {}
    mine = threading.local()

    def begin() -> None:
        mine.copy = Copy(root, Path(tempfile.mkdtemp(dir=folder)))

    def baseline(area: str) -> None:
        for path in files(mine.copy.root, AREAS[area][0]):  # written as a mutant is
            text = ast.unparse(ast.parse(path.read_text(encoding="utf-8")))
            mine.copy.write(str(path.relative_to(mine.copy.root)), text)
        start = time.monotonic()
        if failed := mine.copy.fails(area):
            raise RuntimeError(f"{area}: without a fault fails {failed}")
        limits[area] = 4 * (time.monotonic() - start) + 60
        print(f"{area}: the tests pass without a fault, in {time.monotonic() - start:.0f} s", flush=True)

    def one(mutant: Mutant) -> bool:
        start, (text, words) = time.monotonic(), mutant.made()
        mine.copy.write(mutant.module, text)
        by = mine.copy.fails(mutant.area, mutant.module, limit=limits[mutant.area])
        mine.copy.write(mutant.module, mutant.source)
        end = f"killed by {by}" if by else "SURVIVED"
        print(f"{words}   {end}, {time.monotonic() - start:.0f} s", flush=True)
        return by is not None

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs, initializer=begin) as pool:
        list(pool.map(baseline, sorted({mutant.area for mutant in mutants})))
        return dict(zip(mutants, pool.map(one, mutants), strict=True))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--mutants", type=int, default=100)
    options.add_argument("--area", choices=AREAS, action="append", help="only this one; may be given again")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--list", action="store_true", help="only print the mutants")
    options.add_argument("--jobs", type=int, default=1, help="copies of the checkout in which tests run at once")
    options.add_argument("--save", type=Path, help="write which mutants were killed into this JSON file")
    options.add_argument("--before", type=Path, help="the saved file of an earlier run, to compare with")
    given = options.parse_args(arguments)
    areas = given.area or [*AREAS]
    mutants: list[Mutant] = []
    for left, area in zip(range(len(areas), 0, -1), areas, strict=True):
        mutants += chosen(root, area, (given.mutants - len(mutants)) // left, given.seed)
    if given.list:
        print(*(mutant.made()[1] for mutant in mutants), sep="\n")
        return
    header("mutants")
    killed = run(root, mutants, given.jobs)
    print("\n| area | mutants | killed | share |\n| --- | --- | --- | --- |")
    for name in [*areas, "all"]:
        ends = [end for mutant, end in killed.items() if name in (mutant.area, "all")]
        print(f"| {name} | {len(ends)} | {sum(ends)} | {sum(ends) / max(1, len(ends)):.0%} |")
    print("\nSurvivors:", *(mutant.made()[1] for mutant, end in killed.items() if not end), sep="\n")
    if given.before:
        before = json.loads(given.before.read_text(encoding="utf-8"))
        both = [(before[mutant.name], end) for mutant, end in killed.items() if mutant.name in before]
        then = sum(pair[0] for pair in both)
        print(f"\nOf {len(both)} mutants of {given.before} {then} were killed then and {sum(p[1] for p in both)} now")
    if given.save:
        given.save.write_text(json.dumps({mutant.name: end for mutant, end in killed.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
