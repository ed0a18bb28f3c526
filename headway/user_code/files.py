"""The user's Python files: the one that the pipeline names, and those beside it that it imports.

    imported_files(Path("my_models.py"))     # [my_models.py, towers.py, parts/__init__.py, parts/deep.py]
    digest(Path("my_models.py"))             # changes when any of them does

The imported files are found in the source, without running it. All `import` statements that name Python files or packages in the
first file's folder are followed, from file to file. Any other module belongs to the environment.
"""

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def imported_files(file: Path) -> list[Path]:
    """Returns the file, then the files of its folder that it imports, sorted. Imports of imported files count too."""
    folder, files, todo = file.parent, {file}, [file]
    while todo:
        for name in _imports(todo.pop(), folder):
            for path in _files(folder, name):
                if path not in files:
                    files.add(path)
                    todo.append(path)
    return [file, *sorted(files - {file})]


def digest(file: Path) -> str:
    """Returns one SHA-256, in hex, of the file together with the files in its folder that it imports."""
    first, *others = imported_files(file)
    checksum = hashlib.sha256(first.read_bytes())
    for path in others:
        name, data = path.relative_to(file.parent).as_posix(), path.read_bytes()
        checksum.update(f"\0{name}\0{len(data)}\0".encode())
        checksum.update(data)
    return checksum.hexdigest()


def is_local(folder: Path, name: str) -> bool:
    """Returns whether the top-level module `name` is a Python file or a package in `folder`."""
    return name.isidentifier() and _module_at(folder / name) is not None


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yields the files that an import of the dotted name runs, packages first; nothing for a name that is not in `folder`."""
    at = folder
    for part in name.split("."):
        place = _module_at(at / part) if part.isidentifier() else None
        if place is None:
            return
        if place.suffix == ".py":
            yield place
        at = at / part


def _module_at(path: Path) -> Path | None:
    """Returns the file of a module or package, or the folder of a package without __init__.py; None if `path` is neither."""
    if (package := path / "__init__.py").is_file():
        return package
    if (module := path.with_name(path.name + ".py")).is_file():
        return module
    return path if path.is_dir() and any(path.glob("*.py")) else None


def _imports(file: Path, folder: Path) -> Iterator[str]:
    """Yields the dotted names that a file imports and that may be modules: a and a.b for `from a import b`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # who loads it says so
    package = file.parent.relative_to(folder).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level > len(package) + 1:
                continue
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = [*above, *(node.module.split(".") if node.module else [])]
            if base:
                yield ".".join(base)
            yield from (".".join([*base, alias.name]) for alias in node.names if alias.name != "*")
