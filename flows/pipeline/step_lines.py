"""A finished step in one line, as listeners tell it while a run goes on.

print(line_of(output))        # "  ingest 2013-05            4.1 s  28,796 rows, 12 quarantined"
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from headway.evaluation.slices import named
from headway.messages import counted, metrics_line, number
from headway.stages.step import Output

TITLE_WIDTH = 22


def line_of(output: Output, title_width: int = TITLE_WIDTH) -> str:
    """A finished step in one line, with others in columns."""
    took, detail = "cached" if output.hit else f"{output.seconds:.1f} s", _detail(output)
    return f"  {output.title:<{title_width}} {took:>8}  {detail}".rstrip()


def line_of_spans(outputs: Sequence[Output], title_width: int = TITLE_WIDTH) -> str:
    """Ingested spans in one line."""
    new = [output for output in outputs if not output.hit]
    if len(outputs) == 1:
        return line_of(outputs[0], title_width)
    totals = Counter[str]()
    for output in outputs:
        totals.update(output.get()["counts"])
    took = f"{sum(output.seconds for output in new):.1f} s" if new else "cached"
    said = f"{len(outputs)} spans: {len(new)} new, {len(outputs) - len(new)} reused; {_counted_rows(totals)}"
    return f"  {'ingest':<{title_width}} {took:>8}  {said}"


def _counted_rows(counts: Mapping[str, int]) -> str:
    extra = "".join(f", {counts[k]:,} {k}" for k in ("filtered", "quarantined") if counts[k])
    return f"{counted(counts['written'], 'row')}{extra}"


def _detail(output: Output) -> str:
    result = output.result or {}
    match output.stage:
        case "ingest":
            return _counted_rows(result["counts"]) + _speed(result["counts"]["read"], output)
        case "statistics":
            return ", ".join(f"{split} {counted(rows, 'row')}" for split, rows in result["rows"].items())
        case "splits":
            wrong = len(result["anomalies"])
            return counted(wrong, "finding") if wrong else "; ".join(result["says"])
        case "validate":
            return f"{counted(result['errors'], 'error')}, {counted(result['warnings'], 'warning')}"
        case "analyse":
            names = ", ".join(column["name"] for column in result["columns"])
            return f"{counted(result['rows'], 'row')}, gives {names}"
        case "transform":
            parameters = result["parameters"]
            return f"{counted(len(parameters['fitted']), 'column')}, {parameters['label']['task']}"
        case "train":
            loss, speed = result.get("final_loss"), result.get("steps_per_second")
            parts = [counted(result["steps"], "step")] + [f"loss {number(loss)}"] * (loss is not None)
            return ", ".join(parts if speed is None else [*parts, f"{speed:,.{int(speed < 10)}f} steps/s"])
        case "evaluate":
            incompatible = result.get("incompatible")
            return f"cannot score these rows: {incompatible}" if incompatible else metrics_line(result["metrics"])
        case "measure":
            threshold, worst = result.get("threshold") or {}, (result.get("worst_slices") or {}).get("slices")
            parts = [f"threshold {number(threshold['value'])}"] if threshold.get("value") is not None else []
            parts += [f"worst slice {named(worst[0]['slice'], worst[0]['value'])}"] if worst else []
            return ", ".join(parts)
        case "gate":
            return str(result["status"])
        case "export":
            return ", ".join(result["signatures"])
        case "replay":
            return f"{counted(result['rows'], 'row')}, largest difference {result['largest_difference']:.2g}"
    return ""


def _speed(rows: int, output: Output) -> str:
    """The rows per second of a step that took long enough to have a speed."""
    return "" if output.hit or output.seconds < 1 else f", {rows / output.seconds:,.0f} rows/s"
