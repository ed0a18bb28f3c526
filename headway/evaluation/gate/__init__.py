"""The gate: a candidate is judged by its predictions, beside the champion's and the baselines'."""

from headway.evaluation.gate.stage import VERSION, decide, gate
from headway.evaluation.gate_config import Candidate, Champion, GateRequest, Parts, Repeat, newer, trained_on

__all__ = [
    "VERSION",
    "Candidate",
    "Champion",
    "GateRequest",
    "Parts",
    "Repeat",
    "decide",
    "gate",
    "newer",
    "trained_on",
]
