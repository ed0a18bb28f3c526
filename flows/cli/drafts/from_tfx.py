"""`headway import-tfx`: from what a TFX pipeline left to a pipeline.yaml with the same meaning."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.drafts.init import Label, value_of
from flows.cli.options import JsonOption


def import_tfx(
    *,
    examples: Annotated[str, Parameter(metavar="DIR")],
    to: Annotated[Path, Parameter(metavar="DIR")],
    schema: Annotated[str | None, Parameter(metavar="FILE")] = None,
    transform: Annotated[str | None, Parameter(metavar="FILE.py")] = None,
    label: Label = None,
    name: str | None = None,
    force: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Write a pipeline.yaml with the meaning of a TFX pipeline, and list what has no counterpart.

    Args:
        examples: an output of ExampleGen: the folder that holds Split-train and Split-eval.
        to: the folder in which pipeline.yaml is written.
        schema: schema.pbtxt of SchemaGen (default: types are inferred from the examples).
        transform: the file with preprocessing_fn, which is run.
        label: what to predict: a column, an output of preprocessing_fn that is one, or an expression of columns (default: the
            column that is not in the schema's environment SERVING).
        name: the name of the pipeline and its model (default: the name of the folder --to).
        force: overwrite the files that are there.
    """
    from flows.cli.commands import answer
    from flows.cli.drafts.writing import absolute, check_free, path_from, report, write
    from headway.first_pipeline.yaml_text import pipeline_text
    from headway.from_tfx.imported_pipeline import MODULE, import_pipeline, summary

    target = to / "pipeline.yaml"
    names = ["pipeline.yaml", "schema.pbtxt", *([f"{MODULE}.py"] if transform else [])]
    check_free([to / name for name in names], force, option="--to")
    done = import_pipeline(
        examples=absolute(examples), schema=schema, transform=transform, label=label, name=name or to.resolve().name
    )
    texts = done.files | {"pipeline.yaml": pipeline_text(done.draft, path=path_from(to, done.draft.source["path"]))}
    write(to, texts)
    text = report(done.draft, target)
    if listed := summary(done):
        *head, last = text.splitlines()
        text = "\n".join([*head, "", listed, "", last])
    return answer(options, value_of(done.draft, target) | {"not_translated": done.remarks}, text)
