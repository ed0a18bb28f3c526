"""A table of 5,000 columns goes through ingest in bounded memory, with exact counts where they fit their share."""

import json
import subprocess
import sys

import pytest

PROMISED_MB = 1500
CHILD = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from beam_jobs.ingest import ingest
from beam_jobs.request import IngestRequest
from headway.label import LabelConfig
from headway.monitor import Monitor
from headway.schema import Column
from headway.sources.base import SourceConfig, files
from headway.splits import SplitConfig
from headway.statistics.split import SplitStatistics

def peak():
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) / 1024

folder, width, rows = Path(sys.argv[1]), 5000, 1500
rng = np.random.default_rng(3)
words = pa.array([f"word{i}" for i in range(50)])
makers = [
    lambda: pa.array(rng.standard_normal(rows).astype(np.float32)),
    lambda: pa.array(rng.integers(0, 100, rows)),
    lambda: pa.array(rng.integers(0, 1 << 40, rows)),
    lambda: words.take(pa.array(rng.integers(0, 50, rows))),
]
table = pa.table([makers[i % 4]() for i in range(width)], names=[f"c{i}" for i in range(width)])
pq.write_table(table, folder / "wide.parquet", row_group_size=500)
kinds = ("float32", "int64", "int64", "bytes")
columns = tuple(
    Column(name=f"c{i}", type=kinds[i % 4], nullable=True, encoding="dictionary" if i % 4 == 3 else "plain")
    for i in range(width)
)
source = SourceConfig(format="parquet", path=str(folder / "wide.parquet"))
request = IngestRequest(
    span="all", files=files(source, "all"), source=source, read=columns, stored=tuple(c.name for c in columns),
    label=LabelConfig(expression="c0 > 0"), split=SplitConfig(key=("c2",)),
)
out = folder / "out"
out.mkdir()
result = ingest(request, out, Monitor())
memory = peak()
train = SplitStatistics.load(out / "statistics" / "train")
counted = [i for i, c in enumerate(train.columns.values()) if c.complete]
sketch = train.columns["c2"]
print(json.dumps({
    "mb": memory, "rows": result["counts"]["written"], "train": train.rows, "complete": len(counted),
    "kinds": sorted({i % 4 for i in counted[:-1]}), "distinct": [train.columns["c1"].distinct, train.columns["c3"].distinct],
    "errors": [sketch.distinct_error, sketch.rank_error], "estimate": sketch.distinct / sketch.values,
    "median": [float(sketch.quantile([0.5])[0]) / (1 << 40)],
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_five_thousand_columns_stay_within_their_memory(tmp_path):
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 1500 and 500 < found["train"] < 1500
    assert found["kinds"] == [1, 3] and found["complete"] == 2501  # few integers and texts, and the label
    assert found["distinct"] == [100, 50]
    assert abs(found["estimate"] - 1) < 5 * found["errors"][0] and 0 < found["errors"][1] < 0.03
    assert abs(found["median"][0] - 0.5) < 0.1
    assert found["mb"] < PROMISED_MB, found
