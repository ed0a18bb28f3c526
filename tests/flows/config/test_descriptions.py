"""The descriptions of the keys of pipeline.yaml: `headway schema` gives them to editors, the site's reference shows them."""

from flows.config.pipeline import json_schema


def test_every_key_says_what_it_is_in_its_own_words():
    schema = json_schema()
    sections = {"pipeline.yaml": schema, **schema["$defs"]}
    keys = {
        f"{section}: {key}": field.get("description", "")
        for section, definition in sections.items()
        for key, field in definition.get("properties", {}).items()
    }
    assert len(keys) > 200
    assert not [key for key, said in keys.items() if not said.strip()]
    assert not [key for key, said in keys.items() if said.endswith(".") or said != " ".join(said.split())]
