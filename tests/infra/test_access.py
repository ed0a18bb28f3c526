"""The password of the server that `make up` starts."""

import sys
from pathlib import Path

import pytest

from headway.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))  # scripts, no package
import access
from one_host import Place


def test_it_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    file = tmp_path / "auth"
    made = access.auth_string(file, {})
    user, _, password = made.partition(":")
    assert user == "headway" and len(password) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert access.auth_string(file, {}) == made and file.stat().st_mode & 0o777 == 0o600
    file.write_text("")  # cut off as it was written
    assert access.auth_string(file, {}) not in ("", made)


@pytest.mark.parametrize("names", [[access.SERVER], [access.CLIENT], [access.SERVER, access.CLIENT]])
def test_one_of_the_environment_is_respected(tmp_path, names):
    environ = dict.fromkeys(names, "me:mine")
    assert access.auth_string(tmp_path / "auth", environ) == "me:mine" and not (tmp_path / "auth").exists()


@pytest.mark.parametrize(
    ("environ", "said"),
    [({access.SERVER: "a:b", access.CLIENT: "a:c"}, "differ"), ({access.SERVER: "hunter2"}, "is not user:password")],
)
def test_a_mistake_is_reported_without_the_password(tmp_path, environ, said):
    with pytest.raises(ConfigError, match=said) as info:
        access.auth_string(tmp_path / "auth", environ)
    assert "hunter2" not in str(info.value)


def test_everything_that_is_started_has_it(tmp_path, monkeypatch):
    for name in (access.CLIENT, "PREFECT_API_KEY"):
        monkeypatch.setenv(name, "of:another")
    place = Place(tmp_path, 4300)
    env = place.environment("headway:secret")
    assert env[access.CLIENT] == "headway:secret" and "PREFECT_API_KEY" not in env
    settings = access.server_settings("headway:secret", place.address, 4300, {})
    assert settings[access.SERVER] == "headway:secret"
    assert settings["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:4300,http://localhost:4300"
    assert settings["PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED"] == "true"


def test_what_to_type_never_shows_it(tmp_path):
    file = tmp_path / "a b" / "auth"
    assert access.shell_prefix(file, {}) == f"PREFECT_API_AUTH_STRING=\"$(cat '{file}')\" "
    assert access.shell_prefix(file, {access.CLIENT: "a:b"}) == ""
    wanted = 'PREFECT_API_AUTH_STRING="$PREFECT_SERVER_API_AUTH_STRING" '
    assert access.shell_prefix(file, {access.SERVER: "a:b"}) == wanted
    assert access.login_hint(file, {}) == f"the line in {file}"
    assert access.login_hint(file, {access.CLIENT: "a:b"}) == "$PREFECT_API_AUTH_STRING"
