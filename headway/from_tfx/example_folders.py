"""The output folders of TFX's ExampleGen: the path of their files, with the splits and spans that they tell apart.

examples_path("pipelines/taxi/CsvExampleGen/examples/7")       # ".../7/Split-{split}/*"
"""

from __future__ import annotations

import re

from headway.errors import ConfigError
from headway.messages import some
from headway.storage import filesystem as storage

_SPLIT = re.compile(r"(Split-)?(train|eval|test|[A-Za-z]\w*)")
_SPAN = re.compile(r"(?i)(span-)\w+")


def examples_path(folder: str) -> str:
    """The path of the TFRecord files of an output of ExampleGen, as `source.path` has it.

    `folder` holds Split-train, Split-eval and the like (train and eval, as TFX wrote before 0.26), or span-1, span-2 and the
    like that do; else TFRecord files of one split, or a mere file.

    Raises:
        ConfigError: there is no such folder, or it holds several outputs.
    """
    folder = folder.rstrip("/")
    kind = storage.kind(folder)
    if kind is None:
        raise ConfigError("there is no such folder", where=folder, fix="name an output of ExampleGen: .../examples/7")
    if kind == "file":
        return folder
    inside = [path[len(folder) + 1 :].split("/") for path in storage.below(folder)]
    inside = [parts for parts in inside if not any(part.startswith((".", "_")) for part in parts)]
    if not inside:
        raise ConfigError("the folder is empty", where=folder, fix="name an output of ExampleGen: .../examples/7")
    first = sorted({parts[0] for parts in inside if len(parts) > 1})
    if not first:
        return f"{folder}/*"
    if all(name.isdigit() for name in first):
        if len(first) > 1:
            newest = max(first, key=int)
            raise ConfigError(
                f"the folder holds the outputs of several executions: {some(first, 8)}",
                where=folder,
                fix=f"name one of them, such as the newest: {folder}/{newest}",
            )
        return examples_path(f"{folder}/{first[0]}")
    if all(_SPAN.fullmatch(name) for name in first):
        starts = {match[1] for name in first if (match := _SPAN.fullmatch(name))}
        below = examples_path(f"{folder}/{first[0]}").removeprefix(f"{folder}/{first[0]}")
        return f"{folder}/{starts.pop()}{{span}}{below}"
    ready = [name for name in first if name.startswith("Split-")]
    if ready:
        return f"{folder}/Split-{{split}}/*"
    if {"train"} < {*first} <= {"train", "eval", "test"}:
        return f"{folder}/{{split}}/*"
    raise ConfigError(
        f"the folder holds {some(first, 4)}, and an output of ExampleGen holds Split-train and Split-eval",
        where=folder,
        fix="name the folder of one execution of ExampleGen: .../CsvExampleGen/examples/7",
    )
