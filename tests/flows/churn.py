"""The pipeline.yaml of a small pipeline of a user's own; the fixture `land` lays its months."""

TOLERANCE = "{auc: 0.4, loss: 0.8}"
PIPELINE = f"""
name: churn
source: {{format: parquet, path: "data/{{span}}.parquet"}}
label: y
columns: {{id: {{role: key}}, x: standardize, c: vocabulary}}
split: {{mode: time}}
model: {{name: mlp, hidden: [4]}}
training: {{steps: 24, batch_size: 64, learning_rate: 0.01}}
evaluation: {{slices: []}}
gate: {{baseline: false, tolerance: {TOLERANCE}}}
arrival: {{quiet_minutes: 0}}
"""
