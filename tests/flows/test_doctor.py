"""What the doctor says of things that may be missing."""

from flows import doctor


def test_an_op_that_is_not_built_is_no_fault_and_comes_with_its_command(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADWAY_OPS", raising=False)
    library = tmp_path / "headway_ops.so"
    monkeypatch.setattr(doctor, "expected", lambda: library)
    missing = doctor._op()
    assert missing.ok and "not built" in missing.found and "python -m tfcore.ops.build" in missing.found
    library.touch()
    assert doctor._op().found == "built"
    monkeypatch.setenv("HEADWAY_OPS", "off")
    assert doctor._op().found == "built, and switched off by HEADWAY_OPS"
