"""The best of the last champions, by the differences that promotions measured on the same rows."""

from headway.registry.registry import Event
from headway.registry.standing import best_champion, standing_of


def promoted(version, verdict="promote", kind="promote"):
    return Event(time="t", kind=kind, version=version, previous=None, serving=1, reason="", verdict=verdict)


def chain(*differences, metric="auc", **more):
    """History and facts of version 1 and of one more for each difference to the one before."""
    history = [promoted(1, "first model"), *(promoted(n + 2) for n in range(len(differences)))]
    facts = {1: {}}
    for n, difference in enumerate(differences):
        facts[n + 2] = {"standing": {"metric": metric, "against": n + 1, "difference": difference, **more}}
    return history, facts


def test_fifteen_small_steps_down_are_held_against_the_highest_of_the_last_ten():
    history, facts = chain(*[-0.0019] * 15)
    assert best_champion(history, facts, "auc", most=10) == 7
    assert best_champion(history, facts, "auc", most=100) == 1
    history, facts = chain(-0.001, +0.01, -0.002, -0.002)
    assert best_champion(history, facts, "auc", most=10) == 3
    history, facts = chain(0.1, 0.1, metric="loss")
    assert best_champion(history, facts, "loss", most=10) == 1


def test_a_metric_of_ones_own_rises_the_way_its_verdicts_say():
    history, facts = chain(0.1, 0.1, metric="mine:gain", better="lower")
    assert best_champion(history, facts, "mine:gain", most=10) == 1
    history, facts = chain(0.1, 0.1, metric="mine:gain", better="higher")
    assert best_champion(history, facts, "mine:gain", most=10) is None, "the champion is the best"


def test_the_champion_itself_is_no_second_reference():
    history, facts = chain(+0.001, +0.001)
    assert best_champion(history, facts, "auc", most=10) is None
    assert best_champion(*chain(-0.1), "auc", most=1) is None
    assert best_champion([], {}, "auc", most=10) is None
    assert best_champion(*chain(0.0), "auc", most=10) is None


def test_a_chain_begins_anew_where_nothing_was_measured():
    history, facts = chain(-0.1, -0.01, -0.01)
    facts[3] = {"standing": None}
    assert best_champion(history, facts, "auc", most=10) == 3
    history, facts = chain(-0.1, -0.01, -0.01)
    facts[3]["standing"]["metric"] = "loss"
    assert best_champion(history, facts, "auc", most=10) == 3


def test_what_a_person_chose_is_not_held_against_what_it_replaced():
    for event in (promoted(3, "forced"), promoted(3, None), promoted(3, None, "rollback")):
        history, facts = chain(-0.1, -0.1, -0.01)
        history[2] = event
        assert best_champion(history, facts, "auc", most=10) == 3, event


def test_versions_that_are_gone_or_barred_are_passed_over():
    history, facts = chain(-0.01, -0.01, -0.01)
    assert best_champion(history, facts, "auc", most=10, barred={1}) == 2
    del facts[1]
    assert best_champion(history, facts, "auc", most=10) == 2


def test_a_verdict_says_how_its_candidate_stands():
    compared = {"metric": "auc", "difference": -0.001, "interval": [-0.002, 0.0]}
    verdict = {"primary": "auc", "better": "higher", "champion": {"version": 4}, "comparisons": {"overall": [compared]}}
    assert standing_of(verdict) == {"metric": "auc", "better": "higher", "against": 4, "difference": -0.001}
    assert standing_of(verdict | {"champion": None}) is None and standing_of(verdict | {"champion": 4}) is None
    assert standing_of(verdict | {"comparisons": {"overall": [compared | {"interval": None}]}}) is None
