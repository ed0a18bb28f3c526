"""Every key of pipeline.yaml does something: another value of it changes what a run computes, or is refused by its name."""

import ast
import re
import shutil

import pytest

from flows.config.pipeline import json_schema, read_pipeline
from flows.pipeline.context import Context
from flows.pipeline.plan import plan_run
from headway.config import read_value
from headway.errors import ConfigError
from tests.conftest import ROOT

KEYS = """
Pipeline.window | ingest | window: ? | 4 | 3
Pipeline.label | ingest | label: ? | arr_delay > 15 | arr_delay > 20
Pipeline.columns | transform | columns.origin: ? | vocabulary | {hash: {buckets: 9}}
Pipeline.task | validate | task: ? | auto | binary
Pipeline.preprocess | analyse | preprocess: ? | null | own:one
Pipeline.split | statistics | split.eval_spans: ? | 1 | 2
Pipeline.seed | train | seed: ? | 0 | 1
AlarmsConfig.when | refused | alarms: {when: ?} | [failed]
AlarmsConfig.late_minutes | refused | alarms: {notify: [slack-webhook/ops], when: [failed], late_minutes: ?} | 5
ArrivalConfig.quiet_minutes | refused | arrival: {done: "data/{span}.done", quiet_minutes: ?} | 5
AugmentConfig.padding | refused | training.augment: {mixup: 0.2, padding: ?} | reflect
AugmentConfig.mixup | train | training.augment: {mixup: ?} | 0.2 | 0.3
Bounds.min | gate | gate.thresholds: {auc: {slices: {origin: {min: ?}}}} | 0.1 | 0.2
Bounds.max | gate | gate.thresholds: {loss: {slices: {origin: {max: ?}}}} | 8 | 9
Bucketize.buckets | transform | columns.sched_dep_time: {bucketize: {buckets: ?}} | 3 | 4
Bucketize.boundaries | transform | columns.sched_dep_time: {bucketize: {boundaries: ?}} | [600] | [700]
Clip.min | transform | columns.distance: {clip: {min: ?}} | 1 | 2
Clip.max | transform | columns.distance: {clip: {max: ?}} | 1 | 2
Clip.quantiles | transform | columns.distance: {clip: {quantiles: ?}} | [0.1, 0.9] | [0.2, 0.9]
ColumnConfig.type | ingest | columns.distance: {type: ?} | float | string
ColumnConfig.shape | ingest | columns.carrier: {shape: ?} | scalar | list
ColumnConfig.separator | ingest | columns.carrier: {shape: list, separator: ?} | "," | ";"
ColumnConfig.parse | ingest | columns.origin: {parse: ?} | number | duration
ColumnConfig.role | ingest | columns.carrier: {role: ?} | feature | key
ColumnConfig.feature | refused | columns.origin: {role: feature, feature: ?} | false
ColumnConfig.nullable | ingest | columns.origin: {nullable: ?} | true | false
ColumnConfig.transform | refused | columns.carrier: {transform: ?} | standardize
ColumnConfig.impute | refused | columns.carrier: {impute: ?} | median
ColumnConfig.max_length | refused | columns.carrier: {max_length: ?} | 3
ColumnConfig.pool | refused | columns.carrier: {pool: ?} | [sum]
ColumnValidation.severity | validate | validation.columns: {carrier: {severity: {drift: ?}}} | error | ignore
Costs.false_positive | measure | evaluation.threshold: {cost: {false_negative: 1, false_positive: ?}} | 2 | 3
Costs.false_negative | measure | evaluation.threshold: {cost: {false_positive: 1, false_negative: ?}} | 2 | 3
CsvConfig.delimiter | refused | source.csv: {delimiter: ?} | ";"
CsvConfig.quote | refused | source.csv: {quote: ?} | "'"
CsvConfig.escape | refused | source.csv: {escape: ?} | "/"
CsvConfig.header | refused | source.csv: {names: [a], header: ?} | false
CsvConfig.names | refused | source.csv: {header: false, names: ?} | [a]
CsvConfig.skip_lines | refused | source.csv: {skip_lines: ?} | 1
CsvConfig.null_values | refused | source.csv: {null_values: ?} | [x]
CsvConfig.encoding | refused | source.csv: {encoding: ?} | latin-1
DateParts.parts | refused | columns.distance: {date_parts: {parts: ?}} | [month]
DriftConfig.l_infinity | validate | validation.drift: {l_infinity: ?} | 0.2 | 0.3
DriftConfig.jensen_shannon | validate | validation.drift: {jensen_shannon: ?} | 0.2 | 0.3
DriftConfig.quantile | validate | validation.drift: {quantile: ?} | 0.2 | 0.3
DriftConfig.missing | validate | validation.drift: {missing: ?} | 0.2 | 0.3
DriftConfig.min_rows | validate | validation.drift: {min_rows: ?} | 20 | 30
EarlyStoppingConfig.patience | train | training.early_stopping: {patience: ?} | 2 | 3
EarlyStoppingConfig.every_steps | train | training.early_stopping: {every_steps: ?} | 2 | 3
EarlyStoppingConfig.holdout | train | training.early_stopping: {holdout: ?} | 0.2 | 0.3
EarlyStoppingConfig.min_delta | train | training.early_stopping: {min_delta: ?} | 0.2 | 0.3
EvaluationConfig.slices | measure | evaluation.slices: ? | [origin] | [carrier]
EvaluationConfig.slice_min_rows | measure | evaluation.slice_min_rows: ? | 50 | 60
EvaluationConfig.ndcg_at | refused | evaluation.ndcg_at: ? | 5
EvaluationConfig.threshold | measure | evaluation.threshold: ? | f1 | 0.3
EvaluationConfig.row_values | measure | evaluation.row_values: ? | [] | [carrier]
EvaluationConfig.metrics | measure | evaluation.metrics: ? | {} | {own:metric: higher}
EvaluationConfig.item | refused | evaluation.item: ? | carrier
ExportConfig.limits | replay | export.limits: ? | {size_mb: 50} | {size_mb: 60}
GateConfig.thresholds | gate | gate.thresholds: ? | {auc: {min: 0.1}} | {auc: {min: 0.2}}
GateConfig.tolerance | gate | gate.tolerance: ? | {auc: 0.1} | {auc: 0.2}
GateConfig.primary | gate | gate.primary: ? | auc | loss
GateConfig.baseline | gate | gate.baseline: ? | true | false
GateConfig.slice_min_rows | gate | gate.slice_min_rows: ? | 3 | 4
GateConfig.confidence | measure | gate.confidence: ? | 0.8 | 0.9
GateConfig.hold | gate | gate.hold: ? | true | false
Hash.buckets | transform | columns.carrier: {hash: {buckets: ?}} | 3 | 4
Image.height | transform | columns.carrier: {image: {height: ?, width: 2}} | 3 | 4
Image.width | transform | columns.carrier: {image: {height: 2, width: ?}} | 3 | 4
Image.channels | transform | columns.carrier: {image: {height: 2, width: 2, channels: ?}} | 1 | 3
Image.encoding | transform | columns.carrier: {image: {height: 2, width: 2, encoding: ?}} | raw | file
ImagesConfig.table | refused | source.images: {table: ?} | labels.csv
ImagesConfig.file_column | refused | source.images: {file_column: ?} | name
ImagesConfig.label_column | refused | source.images: {label_column: ?} | class
ImputeConfig.strategy | transform | columns.dep_delay: {impute: {strategy: ?}} | mean | median
ImputeConfig.value | transform | columns.dep_delay: {impute: {strategy: value, value: ?}} | 1 | 2
ImputeConfig.indicator | transform | columns.dep_delay: {impute: {indicator: ?}} | true | false
LabelConfig.column | ingest | label: {column: ?} | arr_delay | dep_delay
LabelConfig.expression | ingest | label: {expression: ?} | arr_delay > 1 | arr_delay > 2
LabelConfig.missing | ingest | label: {column: arr_delay, missing: ?} | filter | quarantine
MinMax.low | transform | columns.distance: {min_max: {low: ?}} | 0.1 | 0.2
MinMax.high | transform | columns.distance: {min_max: {high: ?}} | 2 | 3
ModelConfig.name | transform | model: {name: ?} | mlp | ensemble
ModelConfig.hidden | train | model.hidden: ? | [4] | [5]
ModelConfig.embedding | train | model.embedding: ? | 3 | 4
ModelConfig.dropout | train | model.dropout: ? | 0.1 | 0.2
ModelConfig.images | train | model.images: ? | conv | resnet
ModelConfig.l2 | train | model: {name: mlp, l2: ?} | 1 | 2
ModelConfig.linear_l2 | refused | model.linear_l2: ? | 1
ModelConfig.item | refused | model.item: ? | [carrier]
ModelConfig.options | refused | model.options: ? | {a: 1}
OptimizerConfig.name | train | training.optimizer: {name: ?} | sgd | adam
OptimizerConfig.settings | train | training.optimizer: {name: sgd, settings: ?} | {momentum: 0.1} | {momentum: 0.2}
Parse.as | ingest | columns.origin: {parse: {as: ?}} | number | duration
Parse.format | refused | columns.origin: {parse: {as: number, format: ?}} | "%Y"
Parse.unit | refused | columns.origin: {parse: {as: date, unit: ?}} | kg
Parse.null | ingest | columns.origin: {parse: {as: number, null: ?}} | [a] | [b]
RankingConfig.share | refused | training.ranking: {share: ?} | 0.5
RankingConfig.kind | refused | training.ranking: {kind: ?} | lambdarank
RankingConfig.k | refused | training.ranking: {kind: logistic, k: ?} | 5
RetrievalConfig.share | refused | training.retrieval: {share: ?} | 0.5
RetrievalConfig.correction | refused | training.retrieval: {correction: ?} | true
RunnerConfig.workers | refused | runner: {name: flink, workers: ?} | 2
SamplingConfig.negatives | train | training.sampling: {negatives: ?} | 0.1 | 0.2
SamplingConfig.rates | train | training.sampling: {rates: ?} | {0: 0.1} | {0: 0.2}
SamplingConfig.balance | train | training.sampling: {balance: ?} | over | under
SamplingConfig.correct | train | training.sampling: {negatives: 0.1, correct: ?} | logits | weights
Schedule.name | train | training.learning_rate: ? | cosine | 0.1
Schedule.settings | train | training.learning_rate: {name: cosine, settings: ?} | {initial: 0.1} | {initial: 0.2}
ScheduleConfig.timezone | refused | schedule: {timezone: ?} | Europe/Berlin
ServingLimits.size_mb | replay | export.limits: {size_mb: ?} | 50 | 60
ServingLimits.p99_ms | replay | export.limits: {p99_ms: ?} | 50 | 60
SourceConfig.format | refused | source.format: ? | sql
SourceConfig.rename | ingest | source.rename: ? | {} | {tailnum: tail}
SourceConfig.where | ingest | source.where: ? | distance > 1 | distance > 2
SourceConfig.gaps | refused | source: {format: csv, path: a.csv, gaps: ?}; split: {mode: hash} | allow
SourceConfig.max_cell_bytes | ingest | source.max_cell_bytes: ? | 5 | 6
SourceConfig.csv | refused | source.csv: ? | {delimiter: ";"}
SourceConfig.images | refused | source.images: ? | {table: labels.csv}
SplitConfig.mode | ingest | split: {mode: ?} | hash | time
SplitConfig.key | ingest | split: {key: ?} | [carrier] | [origin]
SplitConfig.eval | refused | split: {mode: time, eval: ?} | 0.3
SplitConfig.test | refused | split: {mode: time, test: ?} | 0.3
SplitConfig.eval_spans | refused | split: {mode: hash, eval_spans: ?} | 2
SplitConfig.test_spans | refused | split: {mode: hash, test_spans: ?} | 2
SplitConfig.column | refused | split: {mode: hash, column: ?} | origin
SplitConfig.values | refused | split: {mode: hash, values: ?} | {a: train}
SplitConfig.eval_from | refused | split: {mode: hash, eval_from: ?} | 5
SplitConfig.test_from | refused | split: {mode: column, column: origin, test_from: ?} | 5
Threshold.min | gate | gate.thresholds: {auc: {min: ?}} | 0.1 | 0.2
Threshold.max | gate | gate.thresholds: {loss: {max: ?}} | 8 | 9
Threshold.slices | gate | gate.thresholds: {auc: {slices: ?}} | {origin: {min: 0.1}} | {origin=JFK: {min: 0.1}}
ThresholdRule.f1 | measure | evaluation.threshold: ? | {f1: true} | {value: 0.5}
ThresholdRule.recall | measure | evaluation.threshold: {recall: ?} | 0.5 | 0.6
ThresholdRule.precision | measure | evaluation.threshold: {precision: ?} | 0.5 | 0.6
ThresholdRule.cost | measure | evaluation.threshold: ? | {value: 0.5} | {cost: {false_positive: 1, false_negative: 2}}
ThresholdRule.value | measure | evaluation.threshold: {value: ?} | 0.5 | 0.6
TrainingConfig.epochs | train | training: {epochs: ?} | 1 | 2
TrainingConfig.steps | train | training.steps: ? | 3 | 4
TrainingConfig.batch_size | train | training.batch_size: ? | 32 | 64
TrainingConfig.optimizer | train | training.optimizer: ? | sgd | adam
TrainingConfig.learning_rate | train | training.learning_rate: ? | 0.1 | 0.2
TrainingConfig.clip_norm | train | training.clip_norm: ? | 1 | 2
TrainingConfig.schedules | train | training.schedules: {label_smoothing: ?} | 0.1 | 0.2
TrainingConfig.loss | train | training.loss: ? | focal | squared_error
TrainingConfig.class_weights | train | training.class_weights: ? | balanced | {0: 1, 1: 2}
TrainingConfig.sampling | train | training.sampling: ? | {balance: over} | {balance: under}
TrainingConfig.augment | train | training.augment: ? | {mixup: 0.1} | {mixup: 0.2}
TrainingConfig.ranking | refused | training.ranking: ? | {share: 0.5}
TrainingConfig.retrieval | refused | training.retrieval: ? | {share: 0.5}
TrainingConfig.early_stopping | train | training.early_stopping: ? | true | false
TrainingConfig.checkpoint_every_steps | train | training.checkpoint_every_steps: ? | 10 | 20
TrainingConfig.micro_batches | train | training.micro_batches: ? | 2 | 4
TrainingConfig.precision | train | training.precision: ? | float32 | bfloat16
TrainingConfig.deterministic | train | training.deterministic: ? | true | false
TrainingConfig.strategy | train | training.strategy: ? | cpu | auto
TrainingConfig.jit | train | training.jit: ? | on | off
TrainingConfig.eager | train | training.eager: ? | true | false
TrainingConfig.summaries | train | training.summaries: ? | true | false
ValidateConfig.max_quarantined | validate | validation.max_quarantined: ? | 0.2 | 0.3
ValidateConfig.max_unseen | validate | validation.max_unseen: ? | 0.2 | 0.3
ValidateConfig.max_missing | validate | validation.max_missing: ? | 0.2 | 0.3
ValidateConfig.min_train_rows | validate | validation.min_train_rows: ? | 2 | 3
ValidateConfig.min_eval_rows | validate | validation.min_eval_rows: ? | 2 | 3
ValidateConfig.leakage | validate | validation.leakage: ? | 0.9 | 0.8
ValidateConfig.drift | validate | validation.drift: ? | {min_rows: 20} | {min_rows: 30}
ValidateConfig.serving | validate | validation.serving: ? | null | requests.jsonl
ValidateConfig.severity | validate | validation.severity: {drift: ?} | error | ignore
ValidateConfig.columns | validate | validation.columns: ? | {carrier: {severity: {drift: error}}} | {}
Vocabulary.top_k | transform | columns.carrier: {vocabulary: {top_k: ?}} | 3 | 4
Vocabulary.min_count | transform | columns.carrier: {vocabulary: {min_count: ?}} | 3 | 4
Vocabulary.oov_buckets | transform | columns.carrier: {vocabulary: {oov_buckets: ?}} | 3 | 4
"""
"""By key: the first stage whose output another value changes, or `refused` where the value would do nothing; the other keys that
it needs, with ? for its value; and the values."""
NO_STAGE_S = """
Pipeline: name schema runner tune store tracking schedule alarms queues arrival predictions secrets
Pipeline: source validation model training evaluation gate export
AlarmsConfig: notify
ArrivalConfig: done
AugmentConfig: flip crop
EvaluationConfig: batch_size
PredictionsConfig: path output columns
Range: low high log
RunnerConfig: name options
ScheduleConfig: retrain predict monitor
SourceConfig: path
TrackingConfig: uri experiment
TrainingConfig: warm_start
TuneConfig: space trials holdout pruner
"""
"""Keys on which no stage depends, or through their own keys alone."""
MISPLACED = """
'*' stands for every column | columns: {"*": standardize, origin: vocabulary}
'*' stands for every column | columns: {"*": vocabulary, origin: vocabulary}
'*' stands for every column | columns: {"*": bucketize, origin: vocabulary}
'*' stands for every column | columns: {"*": ignore, origin: vocabulary}
'*' stands for every column | columns: {"*": {type: string}, origin: vocabulary}
'*' stands for every column | columns: {"*": {impute: median}, origin: vocabulary}
csv only means something with format: csv | source.csv: {delimiter: ";"}
impute needs numbers | columns.sched_dep_time: {transform: {bucketize: {buckets: 3}}, impute: median}
pool needs a list of numbers | columns.distance: {pool: [sum]}
max_length needs a list of categories | columns.distance: {max_length: 3}
its impute would do nothing | columns.distance: {role: key, impute: median}
its pool would do nothing | columns.distance: {role: passthrough, pool: [sum]}
"""
ENTRIES = [[part.strip() for part in line.split(" | ")] for line in KEYS.strip().splitlines()]
NAMES = {entry[0] for entry in ENTRIES}
NAMES |= {f"{line.split(':')[0]}.{key}" for line in NO_STAGE_S.strip().splitlines() for key in line.split()[1:]}


def _overrides(text, value):
    settings = [setting.split(": ", 1) for setting in text.replace("?", value).split("; ")]
    return {key: read_value(value) for key, value in settings}


@pytest.fixture(scope="module")
def plan(exported_once, tmp_path_factory):
    """plan({"training.steps": 3}) -> [(stage, fingerprint)] of each step that a run over the example's store would have."""
    folder = shutil.copytree(exported_once, tmp_path_factory.mktemp("keys") / "project")
    (folder / "own.py").write_text("def one(columns):\n    return {}\n\n\ntwo = metric = one\n")
    (folder / "requests.jsonl").write_text('{"distance": 1}\n')

    def steps(overrides):
        loaded = read_pipeline(folder, overrides)
        return [(step.stage, step.fingerprint) for step in plan_run(Context(loaded, loaded.open_store())).steps]

    return steps


@pytest.mark.slow
@pytest.mark.parametrize("entry", [e for e in ENTRIES if e[1] != "refused"], ids=lambda entry: entry[0])
def test_another_value_of_a_key_changes_what_a_stage_computes(entry, plan):
    _, stage, settings, one, other = entry
    first, second = plan(_overrides(settings, one)), plan(_overrides(settings, other))
    changed = [step for step, before in zip(second, first, strict=False) if step != before] or [*second, *first][-1:]
    assert first != second and changed[0][0] == stage, changed


@pytest.mark.slow
@pytest.mark.parametrize("entry", [e for e in ENTRIES if e[1] == "refused"], ids=lambda entry: entry[0])
def test_a_key_that_would_do_nothing_is_refused_by_its_name(entry, plan):
    key, _, settings, value = entry
    section, key = key.split(".")
    owner = {"CsvConfig": "csv", "ImagesConfig": "images", "RankingConfig": "ranking", "RetrievalConfig": "retrieval"}
    owner["DateParts"] = "date_parts"
    with pytest.raises(ConfigError, match=rf"\b({key}|{owner.get(section, key)})\b"):
        plan(_overrides(settings, value))


@pytest.mark.slow
@pytest.mark.parametrize("line", MISPLACED.strip().splitlines())
def test_a_setting_in_a_place_where_it_does_nothing_is_refused(line, plan):
    said, settings = line.split(" | ")
    with pytest.raises(ConfigError, match=re.escape(said)):
        plan(_overrides(settings, ""))


def test_no_key_is_left_out():
    schema = json_schema()
    sections = {"Pipeline": schema, **schema["$defs"]}
    keys = {
        f"{section}.{key}"
        for section, definition in sections.items()
        for key, field in definition.get("properties", {}).items()
        if "const" not in field
    }
    assert keys == NAMES


def test_the_code_reads_each_key_by_its_name():
    """A model that is fingerprinted whole hides a key that nothing reads."""
    read = set()
    for folder in ("headway", "tfcore", "flows", "beam_jobs"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            read |= {
                node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    names = {name.partition(".")[2] for name in NAMES}
    renamed = {"schema": "schema_path", "as": "as_"}
    assert sorted(name for name in names if renamed.get(name, name) not in read) == []
