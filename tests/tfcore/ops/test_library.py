"""Building the op: said plainly where it cannot be, used where it is, left alone when told so."""

import pytest

from tfcore.ops import library as ops


@pytest.fixture
def build(fork_server, monkeypatch):
    """Types the command with another compiler: (exit code, stderr)."""

    def run(compiler):
        monkeypatch.setenv("CXX", compiler)
        code, _, errors = fork_server.run(ops.FOLDER / "compile.py", "--force", cwd=ops.FOLDER.parent.parent)
        return code, errors

    return run


def test_without_a_compiler_the_command_says_what_to_do(build):
    before = list(ops.BUILT.glob("*"))
    code, errors = build("no-such-compiler")
    assert code == 2 and "Traceback" not in errors
    assert "there is no no-such-compiler" in errors and "apt-get install g++" in errors
    assert list(ops.BUILT.glob("*")) == before


def test_a_compiler_that_fails_leaves_what_was_built(op, build):
    before = sorted(ops.BUILT.glob("*"))
    code, errors = build("false")
    assert code == 1 and "could not compile" in errors
    assert sorted(ops.BUILT.glob("*")) == before


def test_a_built_library_is_used_unless_it_is_switched_off(op, monkeypatch):
    assert ops.library() is op
    monkeypatch.setenv("HEADWAY_OPS", "off")
    assert ops.library() is None


def test_other_sources_are_another_library(monkeypatch, tmp_path):
    for path in [*ops.sources(), *ops.FOLDER.glob("*.h")]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    names = set()
    with monkeypatch.context() as patch:
        patch.setattr(ops, "FOLDER", tmp_path)
        for change in ("", "// changed\n"):
            with (tmp_path / "ranked_list.h").open("a") as file:
                file.write(change)
            ops.op_path.cache_clear()
            names.add(ops.op_path().name)
    ops.op_path.cache_clear()
    assert len(names) == 2 and ops.op_path().name in names


def test_what_does_not_load_is_warned_of_and_not_used(tmp_path):
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.warns(UserWarning, match=r"broken.so does not load.*tfcore.ops.compile --force"):
        assert ops._load(tmp_path / "broken.so") is None
    ops._load.cache_clear()
