"""`headway import-tfx`: from what a TFX pipeline left to a pipeline.yaml with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import JsonOption


def import_tfx(
    *,
    examples: Annotated[
        str, Parameter(metavar="DIR", help="an output of ExampleGen: the folder that holds Split-train and Split-eval")
    ],
    to: Annotated[Path, Parameter(metavar="DIR", help="the folder in which pipeline.yaml is written")],
    schema: Annotated[
        str | None,
        Parameter(metavar="FILE", help="schema.pbtxt of SchemaGen (default: types are inferred from the examples)"),
    ] = None,
    transform: Annotated[
        str | None, Parameter(metavar="FILE.py", help="the file with preprocessing_fn; its source is read, and not run")
    ] = None,
    label: Annotated[
        str | None,
        Parameter(
            metavar="COLUMN|EXPRESSION",
            help="what to predict: a column, an output of preprocessing_fn, or an expression (default: the column that is "
            "not in the schema's environment SERVING)",
        ),
    ] = None,
    name: Annotated[
        str | None, Parameter(help="the name of the pipeline and its model (default: the name of the folder --to)")
    ] = None,
    force: Annotated[bool, Parameter(help="overwrite the files that are there")] = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Write a pipeline.yaml with the meaning of a TFX pipeline, and list what has no counterpart."""
    from flows.cli.commands import answer
    from flows.cli.drafts.init import value_of
    from flows.cli.drafts.writing import absolute, check_free, path_from, report, write
    from headway.first_pipeline.yaml_text import pipeline_text
    from headway.from_tfx.imported_pipeline import MODULE, import_pipeline, summary

    target = to / "pipeline.yaml"
    names = ["pipeline.yaml", "schema.pbtxt", *([f"{MODULE}.py"] if transform else [])]
    check_free([to / name for name in names], force, option="--to")
    done = import_pipeline(
        examples=absolute(examples),
        schema=schema,
        transform=transform,
        label=label,
        name=name or to.resolve().name,
    )
    texts = done.files | {"pipeline.yaml": pipeline_text(done.draft, path=path_from(to, done.draft.source["path"]))}
    write(to, texts)
    said = [
        {"file": remark.file, "line": remark.line, "problem": remark.problem, "fix": remark.fix}
        for remark in done.remarks
    ]
    text = report(done.draft, target)
    if listed := summary(done):
        *head, last = text.splitlines()
        text = "\n".join([*head, "", listed, "", last])
    return answer(options, value_of(done.draft, target) | {"not_translated": said}, text)
