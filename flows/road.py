"""The road from raw files to a promoted model, written once.

    end = road(trip, engine)                  # runs it
    end = road(trip, planner)                 # only looks what would run

A `Caller` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which. The steps themselves stand in `flows.road_data` and `flows.road_model`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.road_model import ModelSteps
from flows.steps import Output
from flows.trip import Caller, End, Trip
from headway.registry import Version


def road(trip: Trip, caller: Caller, *, freeze: bool = True) -> End:
    """Walk the road as far as `trip.last` says, or to the end: the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    return _Walk(trip, caller, freeze).walk()


class _Walk(ModelSteps):
    def walk(self) -> End:
        ingested = self._ingest()
        if self._stops("ingest"):
            return self.end
        statistics = self._statistics(ingested)
        self.statistics = statistics.fingerprint
        if self._stops("statistics"):
            return self.end
        self._complete_schema(statistics)
        validated = self._validate(ingested, statistics, self._splits(ingested))
        self._freeze_schema(validated)
        if self._stops("validate") or not self._passed(validated):
            return self.end
        transform = self._transform(statistics, self._analyse(ingested))
        if self._stops("transform"):
            return self.end
        train = self._train(ingested, transform)
        if self._stops("train"):
            return self.end
        champion = self.trip.registry.champion()
        if champion is not None and champion.facts.get("train") == train.fingerprint and not self.trip.force:
            self._already(champion)
            return self.end
        return self._judge(ingested, transform, train, champion)

    def _judge(self, ingested: Mapping[str, Output], transform: Output, train: Output, champion: Version | None) -> End:
        candidate = self._evaluate(
            "evaluate", ingested, transform, self._trained_model(train), {"train": train.fingerprint}
        )
        self.end.evaluation = candidate.result
        scored = None
        if champion is not None:
            self._note_other_rows(champion)
            scored = self._evaluate(
                f"evaluate champion {champion.number}",
                ingested,
                transform,
                {"kind": "saved_model", "path": str(champion.saved_model)},
                {"version": champion.number, "export": champion.facts.get("export")},
            )
        if self._stops("evaluate"):
            return self.end
        verdict = self._gate(transform, train, candidate, champion, scored)
        if verdict is None:
            self.end.later = ["gate", "export", "replay", "promote"]
            return self.end
        self.end.verdict = verdict
        if self._stops("gate") or (not verdict["promote"] and self.trip.last is None):
            return self.end
        return self._ship(ingested, transform, train, candidate)
