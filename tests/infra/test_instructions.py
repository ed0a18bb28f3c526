"""What a person is told once a server is up, or where it cannot come up."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))  # scripts, no package
import one_host
from one_host import Place, instructions


def test_the_command_that_retrains_is_of_a_deployment_that_is_there(tmp_path):
    place = Place(tmp_path, 4300)
    none = instructions(place, {}, [], "make down")
    assert "headway deploy PIPELINE" in none and "deployment run" not in none and "http://127.0.0.1:4300" in none
    one = instructions(place, {}, ["retrain/sales"], "make down")
    assert "prefect deployment run 'retrain/sales' --watch\n" in one and "deploy PIPELINE" not in one
    two = instructions(place, {}, ["retrain/it's", "retrain/sales"], "stop it")
    assert r"run 'retrain/it'\''s' --watch" in two and "(or retrain/sales)" in two and two.endswith("stop it")


def test_the_port_is_blamed_only_when_it_is_the_cause(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(one_host.PORT_VARIABLE, "many")
    assert one_host.main(["down"]) == 2
    assert "HEADWAY_PREFECT_PORT: 'many' is not a port" in capsys.readouterr().err
    monkeypatch.setenv(one_host.PORT_VARIABLE, "4311")

    def fails(*_, **options):
        raise ValueError("another")

    monkeypatch.setattr(one_host, "down", fails)
    with pytest.raises(ValueError, match="another"):
        one_host.main(["down"])
