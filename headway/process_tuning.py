"""Tunes Headway's own processes: imports without garbage collection, and without what heavy packages take along where it is
installed; freed memory returned to the system.

    with uncollected(), hidden("boto3", "pymongo", importer="apache_beam"):
        import apache_beam
    one_blas_thread()
    collect_rarely()       # a command: most of the objects that it makes stay until it ends
    give_back()

An import of a heavy package makes half a million objects that stay. The collector looks through them again and again as
they grow in number, and once more when the process ends, and finds nothing: half of the time that TensorFlow takes to import.

Arrow's pool and the C library keep what was freed for the next allocation, each thread in a heap of its own: after a wide
Parquet footer, or a range of a wide table, that is a hundred megabytes which no other thread will ever use.
"""

import atexit
import contextlib
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

NEW_OBJECTS = 200_000
"""A process that makes many objects and few cycles looks for garbage after so many new ones, instead of 700."""
MOST_THREADS = 8
"""Of `in_threads`: each has arrays of its own."""
Item = TypeVar("Item")
Made = TypeVar("Made")
_FREEZING = threading.Lock()
_kept = False
"""Whether `uncollected` has kept what was there, and nothing may be unfrozen."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_IMPORTLIB = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external")
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX of malloc.h."""
_KEEPING = {_TRIM_THRESHOLD: 1 << 30, _MMAP_THRESHOLD: 1 << 25, _MMAP_MAX: 0, _ARENA_MAX: 1}


@contextlib.contextmanager
def uncollected(*, keep: bool = False) -> Iterator[None]:
    """Pause the garbage collector within the block, and skip its collection when the process ends.

    Args:
        keep: nor looks at what is there by then ever again; for a process that lives for what it imports.
    """
    global _kept
    _end_uncollected()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
        with _FREEZING:
            if keep:
                gc.freeze()
                _kept = True
            elif not _kept and not gc.get_freeze_count():  # which takes a look at each: 40 ms where TensorFlow is kept
                # among what is old already: as young objects the next small collection would look through all of them
                gc.freeze()
                gc.unfreeze()
    finally:
        if before:
            gc.enable()


def for_all_threads(
    setting: Callable[[], contextlib.AbstractContextManager[object]],
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Make a setting of the process one for blocks in several threads: the first block makes it, the last one unmakes it."""
    lock, made, blocks = threading.Lock(), contextlib.ExitStack(), 0

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        nonlocal blocks
        with lock:
            if not blocks:
                made.enter_context(setting())
            blocks += 1
        try:
            yield
        finally:
            with lock:
                blocks -= 1
                if not blocks:
                    made.close()

    return block


def collect_rarely(new_objects: int = NEW_OBJECTS) -> None:
    """Run the collector after so many new objects, and not at the end of the process: it took an eighth of a run that finds
    everything done. Not for a server, whose garbage may hold what its clients sent."""
    gc.set_threshold(new_objects, *gc.get_threshold()[1:])
    _end_uncollected()


@cache
def _end_uncollected() -> None:
    atexit.register(gc.freeze)


def cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    function: Callable[[Item], Made],
    items: Sequence[Item],
    *,
    most: int = MOST_THREADS,
    check: Callable[[], None] = lambda: None,
) -> list[Made]:
    """`function` of each item, in as many threads as there are cores, or in this one alone. For work of NumPy and Arrow, which
    let other threads run.

    Args:
        most: threads; 1 means this one.
        check: called between items, in this thread; may raise to stop.
    """
    threads = min(cores(), most, len(items))
    if threads < 2:
        alone = []
        for item in items:
            check()
            alone.append(function(item))
        return alone
    from concurrent.futures import ThreadPoolExecutor  # here: the command line imports this module for the other half

    with ThreadPoolExecutor(threads) as pool:
        waiting, found = [pool.submit(function, item) for item in items], []
        try:
            for each in waiting:
                check()
                found.append(each.result())
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def give_back() -> None:
    """Return freed memory to the system. Costs milliseconds, and page faults later: for the end of long work only."""
    import pyarrow as pa  # here: the command line imports this module for the other half

    pa.default_memory_pool().release_unused()
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


@contextlib.contextmanager
def freed_kept() -> Iterator[None]:
    """Keep what is freed within the block for the next array of any thread, and give it back behind it. Else the system zeroes
    the memory of each of many large arrays: a fifth of the time that measuring takes, a third in several threads, of which
    glibc gives each a heap of its own; behind it all threads go on with one heap."""
    mallopt = _of_glibc("mallopt")
    for option, value in _KEEPING.items() if mallopt is not None else ():
        mallopt(option, value)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, _KEEPING[_MMAP_THRESHOLD])
            mallopt(_MMAP_MAX, 1 << 16)
        give_back()


def give_back_large(least: int = 1 << 20) -> None:
    """Let all memory of at least so many bytes return to the system when it is freed, from now on. Else glibc keeps what is
    as large as something that was freed before: a server would keep several times its largest request."""
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, least)


@cache
def _of_glibc(name: str) -> Any:
    """A function of glibc; None where there is none."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


# --- imports


class _Hidden(MetaPathFinder):
    def __init__(self, packages: Sequence[str], importer: str):
        self._packages, self._importer = packages, importer

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name not in self._packages:
            return
        here = inspect.currentframe()
        frame = here and here.f_back
        while frame is not None and frame.f_globals["__name__"] in _IMPORTLIB:
            frame = frame.f_back
        if frame is not None and self._importer in frame.f_globals.get("__name__", "").split("."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def hidden(*packages: str, importer: str) -> Iterator[None]:
    """Let packages look as if they were not installed within the block, to the modules that have `importer` in their dotted
    names. Whoever else imports them in the block gets them."""
    finder = _Hidden(packages, importer)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def arrow_without_pandas() -> None:
    """Keep Arrow from importing pandas for the first array that it makes, for good: it then knows no missing values of pandas.
    For a process of Headway's own that runs no Python file of the user's; 0.15 processor seconds, 40 MB."""
    import pyarrow as pa

    with hidden("pandas", importer=__name__.rpartition(".")[2]):
        pa.array([], from_pandas=True)


class _Around(MetaPathFinder):
    def __init__(self, package: str, block: Callable[[], contextlib.AbstractContextManager[object]]):
        self.package, self.block = package, block

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        finders = [*sys.meta_path]
        if name != self.package or self not in finders:
            return None
        further = finders[finders.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in further)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                # whoever only asks for the spec does not import; and a loader may load other modules, too
                first = module.__name__ == self.package and self in sys.meta_path
                with self.block() if first else contextlib.nullcontext():
                    execute(module)
                    if first:
                        sys.meta_path.remove(self)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def around_import(package: str, block: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
    """Execute the next import of a package, until one succeeds, within a block; the same block for the same package only once."""
    if not any(isinstance(each, _Around) and (each.package, each.block) == (package, block) for each in sys.meta_path):
        sys.meta_path.insert(0, _Around(package, block))


def one_blas_thread(*, one_heap: bool = True) -> None:
    """Let NumPy, if not imported yet, multiply in the thread that asks. For a process that sums millions of rows by products
    of a vector: threads of OpenBLAS wait for each other in a loop, half of the time that measuring takes, and the last digits
    depend on their number. Processes that this one starts are left as they are.

    Args:
        one_heap: from then on all threads take memory from one heap: glibc gives each thread one of its own, and what is freed
            in one is not there for others. Not where TensorFlow runs in this process: its threads would wait for each other.
    """
    if "numpy" not in sys.modules:
        around_import("numpy", _one_thread if one_heap else _one_thread_alone)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One heap, and one thread of OpenBLAS."""
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_ARENA_MAX, 1)
    with _one_thread_alone():
        yield


@contextlib.contextmanager
def _one_thread_alone() -> Iterator[None]:
    """Set OpenBLAS's variable, which it reads when NumPy is imported, unless the user has."""
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_BLAS_THREADS, None)
