"""A preprocess function of the user's own file."""

from tfcore.transform.preprocess import load_preprocess


def test_a_preprocess_imports_where_autograph_converts_it(tmp_path):
    text = "def features(columns):\n    import helpers\n    from parts.units import scaled\n"
    text += "    return {'y': scaled(columns['x']) if helpers.ON else columns['x']}\n"
    (tmp_path / "parts").mkdir()
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "helpers.py").write_text("ON = True\n")
    (tmp_path / "parts" / "units.py").write_text("def scaled(x):\n    return x * 3\n")
    assert load_preprocess(tmp_path / "mine.py", "mine:features")({"x": 2}) == {"y": 6}
