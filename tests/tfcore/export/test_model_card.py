"""The model card says what a model is, how well it did and how to ask it."""

import json
import re

from headway.schema.columns import Column
from headway.schema.tensor_name import tensor_name
from tfcore.export.metadata import ModelMetadata
from tfcore.export.model_card import CardFacts, model_card
from tfcore.export.signatures import signatures_of

COLUMNS = (
    Column(name="dep delay", type="float32", nullable=True),
    Column(name="day", type="int64", nullable=False, temporal="date"),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
)
DESCRIBED = ModelMetadata(columns=COLUMNS, task="binary")
FACTS = CardFacts(
    model="flights",
    label="arr_delay > 15",
    spans=("2013-01", "2013-02"),
    train_rows=3000,
    eval_rows=1000,
    seed=7,
    metrics={"auc": 0.91, "calibration": 1.3},
    intervals={"auc": [0.89, 0.93]},
    baselines={"constant": {"auc": 0.5}},
    compared=(
        {
            "name": "champion",
            "metric": "auc",
            "against": "version 3",
            "change": 0.02,
            "interval": [0.01, 0.03],
            "outcome": "better",
        },
    ),
    status="promoted",
    reasons=("auc is better",),
)


def test_the_card_has_the_data_the_metrics_with_intervals_the_verdict_and_the_limits():
    text = model_card(DESCRIBED, signatures_of(COLUMNS, "binary"), FACTS)
    for line in (
        "# flights",
        "A binary model of `arr_delay > 15`. It gives `probability`, `logit` for each row.",
        "- window: 2013-01 to 2013-02, 2 spans",
        "- trained on: 3,000 rows",
        "| metric | model | interval | constant |",
        "| auc | 0.91 | 0.89 to 0.93 | 0.5 |",
        "| auc | +0.02 | 0.01 to 0.03 |",
        "Against version 3, the champion then, on the same rows:",
        "Verdict of the gate: **promoted**",
        "- auc is better",
        f"| `dep delay` | `{tensor_name('dep delay')}` | float32 | yes |",
        "| `day` | `day` | int64, days since 1970-01-01 | no |",
        "| `tags` | `tags` | list of text | yes |",
        "- On the eval rows it predicts 1.3 times the mean of the label.",
    ):
        assert line in text.splitlines(), line


def test_the_card_of_a_model_of_which_nothing_is_known_says_what_it_takes():
    text = model_card(DESCRIBED, signatures_of(COLUMNS, "binary"), CardFacts(model="flights"))
    assert "## Inputs" in text and "## Quality" not in text and "## Data" not in text and "None" not in text


def test_the_request_on_the_card_is_one_that_the_model_reads():
    from tfcore.serving.request_json import SignatureReader

    signatures = signatures_of(COLUMNS, "binary")
    text = model_card(DESCRIBED, signatures, FACTS)
    body = json.loads(re.search(r"curl -d '(.*)' localhost", text)[1])
    assert SignatureReader("serving_default", signatures["serving_default"], COLUMNS).of_instances(body["instances"])
