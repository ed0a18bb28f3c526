"""The output folders of TFX's ExampleGen: the path of their files, with the splits and spans that they tell apart.

examples_path("pipelines/taxi/CsvExampleGen/examples/7")       # ".../7/Split-{split}/*"
"""

import re

from headway.errors import ConfigError
from headway.messages import some
from headway.storage import filesystem as storage

_SPAN = re.compile(r"(?i)(span-)\w+")
_FIX = "name the folder of one execution of ExampleGen: .../CsvExampleGen/examples/7"


def examples_path(folder: str) -> str:
    """The path of the TFRecord files of an output of ExampleGen, as `source.path` has it.

    `folder` holds Split-train, Split-eval and the like, or span-1, span-2 and the like that do; else TFRecord files of one
    split, or a mere file.

    Raises:
        ConfigError: there is no such folder, or it holds several outputs.
    """
    folder = folder.rstrip("/")
    kind = storage.kind(folder)
    if kind is None:
        raise ConfigError("there is no such folder", where=folder, fix=_FIX)
    if kind == "file":
        return folder
    inside = [path[len(folder) + 1 :].split("/") for path in storage.below(folder)]
    inside = [parts for parts in inside if not any(part.startswith((".", "_")) for part in parts)]
    if not inside:
        raise ConfigError("the folder is empty", where=folder, fix=_FIX)
    first = sorted({parts[0] for parts in inside if len(parts) > 1})
    if not first:
        return f"{folder}/*"
    if [name.isdigit() for name in first] == [True]:
        return examples_path(f"{folder}/{first[0]}")
    if all(name.isdigit() for name in first):
        newest = max(first, key=int)
        raise ConfigError(
            f"the folder holds the outputs of several executions: {some(first, 8)}",
            where=folder,
            fix=f"name one of them, such as the newest: {folder}/{newest}",
        )
    if all(spans := [_SPAN.fullmatch(name) for name in first]) and spans[0]:
        below = examples_path(f"{folder}/{first[0]}").removeprefix(f"{folder}/{first[0]}")
        return f"{folder}/{spans[0][1]}{{span}}{below}"
    if any(name.startswith("Split-") for name in first):
        return f"{folder}/Split-{{split}}/*"
    problem = f"the folder holds {some(first, 4)}, and an output of ExampleGen holds Split-train and Split-eval"
    raise ConfigError(problem, where=folder, fix=_FIX)
