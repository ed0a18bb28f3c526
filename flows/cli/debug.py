"""`headway debug step`: inspect one training step eagerly, op by op, of a pipeline whose spans are ingested.

The first step, or with --resumed the one after the newest checkpoint of a training that was stopped or failed.

It runs the DAG as `headway train` would, up to the training itself, and writes nothing into the store's stages, runs or
registry: what is ingested is read, and what the DAG makes of it in passing (statistics, the transform's parameters) is
made in the report's own folder where the store has it not.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, reporting, run_spec_of
from flows.cli.options import PipelinePath, UpToThousand, WindowOptions
from headway.errors import ConfigError, StoreError
from headway.messages import counted, number

if TYPE_CHECKING:
    from flows.dag.run_spec import RunSpec
    from flows.dag.step import Output, Step
    from flows.progress.reporter import Reporter
    from tfcore.runtime.tensorflow_process import Child

MOST_LOSSES = 12


def debug(
    what: Literal["step"],
    pipeline: PipelinePath = ".",
    /,
    *,
    steps: UpToThousand = 5,
    out: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    resumed: bool = False,
    no_profile: bool = False,
    options: WindowOptions = WindowOptions(),
) -> int:
    """Inspect one training step of the pipeline, the first one by default, and report on it.

    Args:
        what: step: values, gradients and profile of one training step.
        steps: how many compiled steps to time.
        out: where the report is written (default: debug/ in the store).
        resumed: inspect the step after the newest checkpoint (default: the first step).
        no_profile: write no profile for TensorBoard.
    """
    from tfcore.debug.request import DebugRequest
    from tfcore.runtime.tensorflow_process import Child
    from tfcore.train.request import TrainRequest

    run_spec = run_spec_of(pipeline, options)
    folder = _folder(out, run_spec)
    with reporting(options) as report, Child(on_line=report.relay) as child:
        scratch = folder / "made"
        try:
            step = training_step(run_spec, child, report, scratch)
            request = step.stage
            assert isinstance(request, TrainRequest)
            remote = run_spec.store.localize(request.paths(), later=True)
            checkpoints = _copied(request.checkpoints, scratch) if resumed else None
            debugged = DebugRequest(train=request, checkpoints=checkpoints, steps=steps, profile=not no_profile)
            function, monitor = "tfcore.debug.inspect_step:debug_step", report.monitor("debug")
            runtime: dict[str, Any] = {"remote": remote} if remote else {}
            result = child.call(function, debugged, folder, monitor, **runtime)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    text = report_text(result)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    return answer(options, result | {"folder": str(folder)}, f"{text}\n\nin full: {folder}")


def _folder(path: str | None, run_spec: RunSpec) -> Path:
    """Return a new or empty folder for the report; by default debug/<pipeline>-<time> in the store."""
    if path is None:
        name = f"{run_spec.loaded.pipeline.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        return run_spec.store.root / "debug" / name
    out = Path(path).absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError("exists already and is not an empty folder", where=f"--out {path}", fix="name a new folder")
    return out


def _copied(checkpoints: Path | None, scratch: Path) -> Path:
    """Copy the newest checkpoint into `scratch`: reading sweeps a folder, and a training may be writing to it."""
    folders = checkpoints.iterdir() if checkpoints and checkpoints.is_dir() else ()
    steps = {int(path.name): path for path in folders if path.name.isdigit()}
    if not steps:
        raise StoreError(
            "there is no checkpoint of this training: it ended well, or was stopped before it saved one",
            where=str(checkpoints),
            fix="leave out --resumed to inspect the first step; training.checkpoint_every_steps sets how often one is saved",
        )
    newest = steps[max(steps)]
    shutil.copytree(newest, scratch / "checkpoints" / newest.name)
    return scratch / "checkpoints"


def training_step(run_spec: RunSpec, child: Child, report: Reporter, scratch: Path) -> Step:
    """Return the training step that a run would execute now.

    Args:
        scratch: a folder for what the store does not have.

    Raises:
        StoreError: a span is not ingested.
    """
    from flows.dag.dag import run_dag
    from flows.execution.engine import Planner, run_stage

    called: dict[str, Step] = {}

    class Stored(Planner):
        """Runs what the store does not have, up to the training, and commits nothing."""

        def call_many(self, steps: Sequence[Step]) -> list[Output[Any]]:
            called.setdefault(steps[0].stage.name, steps[0])
            return super().call_many(steps)

        def missed(self, step: Step) -> Output[Any]:
            name = step.stage.name
            if name == "train":
                return super().missed(step)
            if name == "ingest":
                problem, fix = f"the store has no output of {step.title}", "headway ingest, or headway train"
                raise StoreError(problem, where=self.store.name, fix=fix)
            out = scratch / name
            out.mkdir(parents=True)
            began = time.perf_counter()
            with_tensorflow = child if step.stage.tensorflow else None
            (result,) = run_stage([step], [out], report.monitor(step.title), self.store, with_tensorflow)
            output = step.output(out, result, seconds=time.perf_counter() - began)
            report.output(output)
            return output

    run_dag(replace(run_spec, last="train"), Stored(run_spec.store), freeze=False)
    return called["train"]


def report_text(result: Mapping[str, Any]) -> str:
    """The report for a terminal: problems first, then tables."""
    from flows.tell.rendering.cells import cell, text_table

    compiled = result["compiled"]
    seconds = compiled["seconds"]
    parts = [_problems(result["problems"])]
    knobs = ", ".join(f"{name} {value:.4g}" for name, value in result["knobs"].items())
    loss, norm = (cell(result[name]) or "not finite" for name in ("loss", "gradient_norm"))
    done = "applied" if result["applied"] else "skipped"
    parts.append(
        f"step {result['step']}, {counted(result['rows'], 'row')}: loss {loss}, gradient norm {norm}, {done}; {knobs}"
    )
    parts.append("inputs\n" + text_table([{"input": entry["name"]} | _row(entry) for entry in result["inputs"]]))
    parts.append("layers, as they ran\n" + text_table(_layers(result["layers"])))
    parts.append("variables\n" + text_table([_variable(entry) for entry in result["variables"]]))
    losses = [cell(value) or "nan" for value in compiled["losses"]]
    listed = " ".join(losses if len(losses) <= MOST_LOSSES else [*losses[: MOST_LOSSES - 2], "...", losses[-1]])
    text = f"{counted(len(compiled['losses']), 'compiled step')} from {compiled['first']:,}: loss {listed}"
    if seconds:
        text += f"; {min(seconds) * 1e3:.2f} ms per step at best, {result['eager_seconds'] * 1e3:.0f} ms eagerly"
    lines = [text, "  XLA compiles it" if compiled["mode"] == "jit" else "  it runs without XLA"]
    lines += [f"  {compiled['refused']}"] if compiled["refused"] else []
    lines += [f"  it calls the Python function {name}, on the host" for name in compiled["python"]]
    parts.append("\n".join(lines))
    if result["profile"]:
        parts.append(f"profile: tensorboard --logdir {result['profile']}")
    return "\n\n".join(parts)


def _problems(problems: Sequence[Mapping[str, Any]]) -> str:
    if not problems:
        return "no problem found"
    lines = [f"{len(problems)} problem{'s' * (len(problems) > 1)} found"]
    for problem in problems:
        lines.append(f"  {problem['kind']}: {problem['where']}: {problem['problem']}")
        if problem["fix"]:
            lines.append(f"    fix: {problem['fix']}")
    return "\n".join(lines)


def _row(summary: Mapping[str, Any]) -> dict[str, Any]:
    row = {"dtype": summary["dtype"], "shape": str(summary["shape"])}
    row |= {name: summary.get(name) for name in ("min", "max", "mean")}
    row["zeros"] = f"{summary['zeros']:.0%}" if "zeros" in summary else None
    return row | {name: summary.get(name) or None for name in ("nan", "inf")}


def _layers(layers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"layer": "  " * layer["depth"] + layer["layer"], "type": layer["type"]}
        | _row(output)
        | {"dead units": f"{layer['dead']:.0%}" if layer["dead"] else ""}
        for layer in layers
        for output in layer["outputs"]
    ]


def _variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    weight, gradient = variable["weight"], variable["gradient"]
    row: dict[str, Any] = {"variable": variable["name"], "dtype": weight["dtype"], "shape": str(weight["shape"])}
    for name, summary in (("weight", weight), ("gradient", gradient)):
        if summary is None:
            row[name] = "none"
            continue
        bad = summary.get("nan", 0) + summary.get("inf", 0)
        row |= {
            name: f"{number(summary['min'])} to {number(summary['max'])}"
            if summary.get("min") is not None
            else "not finite",
            f"{name} mean": summary.get("mean"),
            f"{name} 0s": f"{summary.get('zeros', 0.0):.0%}",
            f"{name} bad": bad or None,
        }
    return row | {"change": "" if variable["change"] is None else f"{variable['change']:.2%}"}
