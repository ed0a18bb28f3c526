"""docs/python.md is made from the docstrings of what `import headway` offers; test_pages.py runs its programs."""

import inspect
import re
import sys

import headway
from tests.docs.pages import ROOT

sys.path.insert(0, str(ROOT / "infra" / "site"))
import python_api


def public(owner):
    """(name, what it is) of each public function, class and member."""
    for name in owner.__all__ if owner is headway else vars(owner):
        found = getattr(owner, name)
        if not name.startswith("_") and (
            inspect.isroutine(found) or inspect.isclass(found) or isinstance(found, property)
        ):
            yield name, found
            if inspect.isclass(found):
                yield from ((f"{name}.{member}", it) for member, it in public(found))


def test_the_page_is_what_the_docstrings_say():
    written = python_api.DOOR.read_text(encoding="utf-8") == python_api.door()
    assert written and python_api.page(), "write the page: .venv/bin/python infra/site/python_api.py"


def test_every_public_name_stands_on_the_page_with_a_sentence_about_it():
    page, found = python_api.DOOR.read_text(encoding="utf-8"), dict(public(headway))
    assert {"open", "fit", "Pipeline.run", "Run.metrics", "Version.predict", "TableModel.close"} <= found.keys()
    for name, it in found.items():
        assert name in page
        first = inspect.getdoc(it).split("\n\n")[0]
        assert re.match(r"[A-Z`].*[.]$", first, re.DOTALL), f"{name}: {first}"
