"""The gate: a candidate is judged by its predictions, beside the champion's and the baselines'."""

from headway.evaluation.gate.gate_request import (
    VERSION,
    Candidate,
    Champion,
    GateRequest,
    Parts,
    Repeat,
    newer,
    trained_on,
)

__all__ = [
    "VERSION",
    "Candidate",
    "Champion",
    "GateRequest",
    "Parts",
    "Repeat",
    "newer",
    "trained_on",
]
