"""Two models compared on the same rows, a version compared with the champion of its time, and phrases for rows.

    change_since(version)          # "auc +0.002 (+0.001 to +0.003) against v3 on 2013-12"

Metrics of versions on different rows cannot be compared: `own_levels` therefore names the spans of a version's rows.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from flows.records import RunRecord
from flows.report.model import Table
from headway.evaluation.verdict import Check
from headway.messages import counted, ends, metric_text, metrics_line, of_window, signed
from headway.registry.registry import Registry, Version
from headway.storage.store import Store
from headway.tasks.table import direction

UNCLEAR: Literal["no clear difference"] = "no clear difference"
Outcome = Literal["better", "worse", "no clear difference", ""]


def outcome_of(check: Check) -> Outcome:
    """Returns "better" or "worse" for the second of two models if the interval of the change lies on one side of 0,
    else "no clear difference"; "" without an interval."""
    if check.interval is None:
        return ""
    low, high = check.interval
    if low <= 0 <= high:
        return UNCLEAR
    return "better" if (low > 0) == (direction(str(check.metric), check.better) > 0) else "worse"


def change_text(check: Check) -> str:
    """Returns a change with its sign and its interval; empty where there is none."""
    if check.change is None:
        return ""
    return signed(check.change) + (f" ({ends(check.interval, signed)})" if check.interval else "")


def paired_table(title: str, checks: Sequence[Check], first: str, second: str, note: str = "") -> Table:
    """Returns a table with a row per check: the values of both models on the same rows, and their difference."""
    rows = [
        {
            "metric": check.metric,
            first: None if check.before is None else metric_text(check.before),
            second: None if check.value is None else metric_text(check.value),
            "difference": change_text(check),
            f"{second} is": outcome_of(check),
        }
        for check in checks
    ]
    tones = [{"better": "green", "worse": "red"}.get(outcome_of(check), "plain") for check in checks]
    return Table(title, rows, note, whole=("difference",), tones=tones)


# --- versions


def change_since(version: Version) -> str:
    """Returns how a version compares with the champion of its time: "auc +0.002 (+0.001 to +0.003) against v3 on
    2013-12". The rows are the eval rows of the run that made the version. Empty if the gate did not compare the two."""
    compared = version.facts.get("compared")
    if not isinstance(compared, dict):
        return ""
    check = Check.model_validate(compared["check"])
    return f"{check.metric} {change_text(check)} against v{compared['version']}{_on(eval_spans(version))}"


def own_levels(version: Version) -> str:
    """Returns the most important metrics of a version, with the spans of the eval rows, as text; empty without metrics."""
    line = metrics_line(metrics_of(version))
    return line + _on(eval_spans(version)) if line else ""


def judged_spans(store: Store, record: RunRecord) -> tuple[str, ...]:
    """Returns the spans whose rows a run judged its candidate on."""
    if record.verdict is not None and record.verdict.spans:
        return record.verdict.spans
    step = record.step("splits")
    manifest = store.find(step.stage, step.fingerprint) if step is not None else None
    return spans_in(manifest.key.get("inputs", {}).get("parts", {}).get("eval") if manifest is not None else None)


def rows_in_words(spans: Sequence[str]) -> str:
    """Returns a phrase for the eval rows of spans: "the eval rows of 2013-12"."""
    return f"the eval rows{of_window(spans)}" if spans else "the eval rows of its run"


def rows_of(rows: int, spans: Sequence[str], split: str = "eval") -> str:
    """Returns a phrase for the rows that metrics are of: "1,200 eval rows of 2013-12", or "1,200 eval rows"."""
    return f"{counted(rows, f'{split} row')}{of_window(spans)}"


def _on(spans: Sequence[str]) -> str:
    return of_window(spans, "on") if spans else " on its own eval rows"


def names_of_versions(registry: Registry) -> defaultdict[int, list[str]]:
    """Returns the names that point at each version: champion, previous, aliases; an empty list for other versions."""
    places = {"champion": registry.champion_or_nobody(), "previous": registry.previous(), **registry.aliases()}
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, number in places.items():
        if number is not None:
            names[number].append(name)
    return names


def eval_spans(version: Version) -> tuple[str, ...]:
    """Returns the spans whose rows a version was judged on."""
    return spans_in(version.facts.get("eval_parts"))


def spans_in(parts: object) -> tuple[str, ...]:
    """Returns the distinct spans of a list of parts, each [span, split]; empty for anything else."""
    found = [part[0] for part in parts if isinstance(part, list) and part] if isinstance(parts, list) else []
    return tuple(dict.fromkeys(map(str, found)))


def metrics_of(version: Version) -> dict[str, float]:
    """Returns the metrics of a version on the eval rows of the run that made it."""
    metrics = version.facts.get("metrics")
    found = metrics if isinstance(metrics, dict) else {}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
