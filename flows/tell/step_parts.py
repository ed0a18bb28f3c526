"""What a step that has just ended came to, as a part: `headway run --to` prints it, Prefect keeps it as an artifact.

told = part_of(output)                # of statistics, validation, evaluation and importance
text(told), markdown(told)
"""

from flows.tell.metric_tables import importance_table, metric_table, rows_of
from flows.tell.rendering.parts import Part
from flows.tell.rendering.tables import Table
from flows.tell.sections.scores import measured_part
from flows.tell.sections.window.column_words import column_rows
from flows.tell.sections.window.window_data import findings_of, splits_table
from headway.evaluation.results.measured import Measured
from headway.messages import counted
from headway.stages.step import Output
from headway.statistics.summary import WindowStatistics
from headway.validation.anomaly import Validated
from tfcore.evaluation.results import Evaluated, Importance


def part_of(output: Output) -> Part | None:
    """What a finished step came to; None of a stage without more to say than its line."""
    match output.stage:
        case "statistics":
            return _statistics(output.read(WindowStatistics))
        case "validate":
            return _validation(output.read(Validated))
        case "evaluate":
            return _evaluation(output.title, output.read(Evaluated))
        case "importance":
            return Part("Importance", tables=[importance_table(output.read(Importance))])
        case "measure":
            return measured_part(output.read(Measured), split="test" if output.title == "measure test" else "eval")
    return None


def key_of(output: Output) -> str:
    """The name under which what later runs say of the step follows: evaluation, evaluation-champion, ..."""
    words = [word for word in output.title.split() if not word.isdigit()]
    names = {"evaluate": "evaluation", "measure": "evaluation", "validate": "validation"}
    return "-".join([names.get(output.stage, output.stage), *words[1:]])


def _statistics(found: WindowStatistics) -> Part:
    splits = [{"split": name, "rows": rows, "columns": len(found.of(name))} for name, rows in found.rows.items()]
    tables = [
        Table(f"columns of the {name} split, {counted(rows, 'row')}", column_rows(found.columns[name]))
        for name, rows in found.rows.items()
        if found.columns.get(name)
    ]
    return Part("Statistics", tables=[Table("splits", splits), *tables])


def _validation(found: Validated) -> Part | None:
    """What validation found, and the proof of the splits; None where it has nothing to say."""
    if not found.anomalies and not found.splits:
        return None
    said = f"{counted(found.errors, 'error')}, {counted(found.warnings, 'warning')}"
    return Part("Validation", [said], tables=splits_table(found), findings=findings_of(found))


def _evaluation(title: str, found: Evaluated) -> Part | None:
    """Another model's metrics; the predictions of the candidate are measured."""
    if found.incompatible is not None:
        return Part(title, [f"It cannot score these rows: {found.incompatible}"])
    if title in ("evaluate", "evaluate test"):
        return None
    return Part(title, [f"On {rows_of(found.rows, ())}."], tables=[metric_table(found.values)])
