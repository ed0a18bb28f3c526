"""What a person is told once a server is up."""

from flows.orchestration.local_server import Place, instructions


def test_the_command_that_retrains_is_of_a_deployment_that_is_there(tmp_path):
    place = Place(tmp_path, 4300)
    none = instructions(place, {}, [])
    assert "headway deploy PIPELINE" in none and "deployment run" not in none and "http://127.0.0.1:4300" in none
    one = instructions(place, {}, ["retrain/sales"])
    assert "prefect deployment run 'retrain/sales' --watch\n" in one and "deploy PIPELINE" not in one
    two = instructions(place, {}, ["retrain/it's", "retrain/sales"], "stop it")
    assert r"run 'retrain/it'\''s' --watch" in two and "(or retrain/sales)" in two and two.endswith("stop it")
