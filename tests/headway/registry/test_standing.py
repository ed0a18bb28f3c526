"""The early champion that candidates are held against, and how the champions since then stood to it."""

from headway.evaluation.verdict import CHAMPION, EARLY_CHAMPION, Check, Model, Verdict
from headway.registry.registry import Event
from headway.registry.standing import reference_of, standing_of


def promoted(version, verdict="promote", kind="promote"):
    return Event(time="t", kind=kind, version=version, previous=None, serving=1, reason="", verdict=verdict)


def chain(versions, *, reference=1):
    """History and facts of version 1 and of those that followed, each held against the one before and the reference."""
    history = [promoted(1, "first model"), *(promoted(n) for n in range(2, versions + 1))]
    facts = {1: {}}
    for n in range(2, versions + 1):
        beside = {"version": reference, "candidate": {"auc": [-0.001 * (n - 1), 0.002]}, "champion": {}}
        if n > 2:
            beside["champion"] = {"auc": [-0.001 * (n - 2), 0.002]}
        standing = {"metric": "auc", "against": n - 1, "difference": -0.001, "reference": beside}
        facts[n] = {"standing": standing, "eval_parts": [[f"2024-{n:02}", "eval"]]}
    return history, facts


def test_the_reference_stays_the_same_from_promotion_to_promotion():
    for versions in (2, 5, 40):
        found = reference_of(*chain(versions), most=100)
        assert (found.version, found.place) == (1, versions - 1)


def test_each_promotion_measured_its_candidate_and_the_champion_of_its_time():
    found = reference_of(*chain(3), most=100)
    assert [(each["place"], each["differences"]["auc"][0]) for each in found.measured] == [
        (1, -0.001),
        (2, -0.002),
        (1, -0.001),
    ]
    assert found.measured[1]["eval"] == found.measured[2]["eval"] == [["2024-03", "eval"]]


def test_the_champion_itself_is_no_reference():
    assert reference_of([], {}, most=100) is None
    assert reference_of(*chain(1), most=100) is None
    assert reference_of(*chain(5), most=1) is None


def test_a_reference_that_is_too_far_back_is_followed_by_one_from_the_middle():
    found = reference_of(*chain(12), most=10)
    assert (found.version, found.place, found.measured) == (7, 5, [])


def test_a_chain_begins_anew_where_nothing_was_compared():
    history, facts = chain(5)
    facts[4] = {"standing": None}
    assert reference_of(history, facts, most=100).version == 4


def test_what_a_person_chose_is_not_held_against_what_it_replaced():
    for event in (promoted(3, "forced"), promoted(3, None), promoted(3, None, "rollback")):
        history, facts = chain(5)
        history[2] = event
        assert reference_of(history, facts, most=100).version == 3, event


def test_versions_that_are_gone_or_barred_are_passed_over_and_their_measurements_left_out():
    history, facts = chain(4)
    found = reference_of(history, facts, most=100, barred={1})
    assert (found.version, found.measured) == (2, [])
    del facts[1]
    assert reference_of(history, facts, most=100).version == 2


def test_versions_from_before_there_was_a_reference_are_a_chain_too():
    history, facts = chain(4)
    for version in (2, 3, 4):
        del facts[version]["standing"]["reference"]
    found = reference_of(history, facts, most=100)
    assert (found.version, found.place, found.measured) == (1, 3, [])


def test_a_verdict_says_how_its_candidate_stands_to_the_champion_and_to_the_reference():
    compared = Check(
        name=CHAMPION,
        metric="auc",
        value=0.799,
        before=0.8,
        change=-0.001,
        interval=(-0.002, 0.0),
        error=0.0005,
        outcome="within the limit",
    )
    verdict = Verdict(
        verdict="promote", promote=True, primary="auc", better="higher", champion=Model(version=4), checks=(compared,)
    )
    found = {
        "metric": "auc",
        "better": "higher",
        "against": 4,
        "difference": -0.001,
        "interval": [-0.002, 0.0],
        "confidence": None,
    }
    alone = {"version": 4, "candidate": {"auc": (-0.001, 0.0005)}, "champion": {}}
    assert standing_of(verdict) == found | {"reference": alone}
    early = compared.model_copy(update={"name": EARLY_CHAMPION, "before": 0.81, "change": -0.011, "error": 0.001})
    beside = verdict.model_copy(update={"reference": Model(version=1), "checks": (compared, early)})
    kept = standing_of(beside)["reference"]
    assert kept["version"] == 1 and kept["candidate"] == {"auc": (-0.011, 0.001)}
    assert kept["champion"]["auc"] == (0.8 - 0.81, 0.001)
    assert standing_of(verdict.model_copy(update={"champion": None})) is None
    uncompared = compared.model_copy(update={"interval": None})
    assert standing_of(verdict.model_copy(update={"checks": (uncompared,)})) is None
