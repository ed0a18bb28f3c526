"""Figures of the user's own: functions in Python files beside the pipeline that return a matplotlib figure.

def by_hour(rows):                    # pyarrow.Table of the eval rows: label, prediction, and the columns that are kept
    figure = Figure()
    figure.subplots().hist(rows["prediction"].to_numpy())
    return figure
"""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from markupsafe import Markup

from flows.tell.material import Material
from flows.tell.rendering.parts import Chart, Finding, Part
from headway.errors import ConfigError
from headway.user_code.loading import line_of, load_function

_MOST_BYTES = 5 << 20
"""Of a figure."""


def own_figures(material: Material, functions: Mapping[str, Path]) -> Part | None:
    """The part with them; None where there are none, or the run has no eval rows.

    Args:
        functions: {module:function: its file}.
    """
    title = next(
        (t for t, o in material.outputs.items() if o.stage == "evaluate" and o.value == material.evaluated), ""
    )
    predictions = material.evaluated and material.evaluated.predictions
    if not functions or not predictions or (path := material.file(title, predictions)) is None:
        return None
    rows, charts, findings = pq.read_table(path), list[Chart](), list[Finding]()
    for name, file in functions.items():
        try:
            charts.append(Chart(name, _drawn(load_function(file, name.partition(":")[2])(rows), name)))
        except ConfigError as error:
            findings.append(Finding("error", f"{name}: {error.problem}", f"see {error.where}" if error.where else ""))
        except (Exception, SystemExit) as error:  # a report must not end the run
            said = f"{name} failed: {type(error).__name__}: {error}"
            findings.append(
                Finding("error", said, f"see {line_of(error, file)}; it has {', '.join(rows.column_names)}")
            )
    return Part("Figures of your own", charts=charts, findings=findings)


def _drawn(figure: Any, name: str) -> Markup:
    """A figure as a picture that cannot touch the page around it.

    Raises:
        ConfigError: it is not a figure, or too large for a report.
    """
    if not hasattr(figure, "savefig"):
        raise ConfigError(f"returns {type(figure).__name__}, not a matplotlib figure")
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    if written.tell() > _MOST_BYTES:
        raise ConfigError(
            f"its figure takes {written.tell() >> 20} MB; a report shows figures of up to {_MOST_BYTES >> 20}"
        )
    address = f"data:image/svg+xml;base64,{base64.b64encode(written.getvalue()).decode()}"
    return Markup('<img class="own" alt="{}" src="{}">').format(name, address)
