"""Every Python block of the guide runs, each page in a process and a namespace of its own, and prints what it shows.

The processes are forked: TensorFlow is imported once for all pages.

A ```text block right after a Python block is what that block prints; "..." in it stands for anything.
"""

import doctest
import json
import re

import pytest

from tests.docs.pages import ROOT, blocks

GUIDE = ROOT / "docs" / "graph-functions"
PAGES = [
    *sorted(page for page in GUIDE.glob("*.md") if page.name != "README.md"),
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "custom-ops.md",
    ROOT / "docs" / "serving.md",
    ROOT / "docs" / "stages.md",
    ROOT / "docs" / "training.md",
]
CHILD = """
import contextlib, io, json, os, sys, types
path, spans = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, "")
lines = open(path, encoding="utf-8").read().splitlines()
sys.modules["page"] = types.ModuleType("page")  # a class of the page is looked for in its module
namespace = vars(sys.modules["page"])
namespace["__file__"] = path
printed = []
for first, last in spans:
    source = "\\n" * first + "\\n".join(lines[first:last]) + "\\n"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source, path, "exec"), namespace)
    printed.append(out.getvalue())
print("\\n@@" + json.dumps(printed), flush=True)
os._exit(0)  # without taking TensorFlow apart
"""


def programs(page):
    """[(first line, last line, code, what it is to print or None)] of a page."""
    found, made = blocks(page), []
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "python" and not block.notes:
            follows = after is not None and after.language == "text" and after.follows
            last = block.line + block.code.count("\n")
            made.append((block.line, last, block.code, after.code if follows else None))
    return made


def run(page, tmp_path, fork_server):
    """What each of the page's blocks prints. Its lines keep their numbers, so that a traceback points into the page."""
    found = programs(page)
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for first, last, code, _ in found:
        lines[first:last] = code.splitlines()
    copy = tmp_path / f"page_{page.stem.replace('-', '_')}.py"  # AutoGraph reads a function's source from its file
    copy.write_text("\n".join(lines) + "\n", encoding="utf-8")
    child = tmp_path / "child.py"
    child.write_text(CHILD, encoding="utf-8")
    spans = json.dumps([block[:2] for block in found])
    code, said, errors = fork_server.run(child, copy, spans, cwd=tmp_path)
    assert code == 0, f"{page.name}: {errors[-6000:]}"
    return found, json.loads(said.rpartition("\n@@")[2])


def differences(page, tmp_path, fork_server):
    checker, options, wrong = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, []
    for (first, _, code, expected), printed in zip(*run(page, tmp_path, fork_server), strict=True):
        if expected is not None and not checker.check_output(expected, printed, options):
            example = doctest.Example(code, expected)
            wrong.append(f"{page.name}, line {first}:\n{checker.output_difference(example, printed, options)}")
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_guide_s_programs_run_and_print_what_they_show(page, tmp_path, fork_server):
    assert any(expected for *_, expected in programs(page)), "a page shows what its programs print"
    wrong = differences(page, tmp_path, fork_server)
    assert not wrong, "\n".join(wrong)


PARTS = ("The program", "What goes wrong, and how it shows", "What it costs", "Where Headway uses it")


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == GUIDE], ids=lambda page: page.stem)
def test_a_page_of_the_guide_has_its_parts_and_what_it_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    assert "**Short answer.**" in text.split("## ")[0]
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [title for title in titles if title in PARTS] == list(PARTS)
    parts = dict(zip(titles, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True))
    (bench, section), *_ = re.findall(r"`python (bench/\w+\.py)(?: --only ([\w-]+))?`", parts["What it costs"])
    assert section == page.stem or not section
    assert f'"{page.stem}"' in (ROOT / bench).read_text(encoding="utf-8") or not section
    used = parts["Where Headway uses it"]
    files = {ROOT / name for name in re.findall(r"`(\w+(?:/\w+)*(?:\.py|/))`", used)}
    modules = {ROOT / name.replace(".", "/") for name in re.findall(r"`(tfcore(?:\.[a-z_]+)+)", used)}
    missing = [file for file in files if not file.exists()]
    missing += [m for m in modules if not m.with_suffix(".py").exists() and not m.is_dir()]
    assert files | modules and not missing, missing
    assert f"({page.name})" in (GUIDE / "README.md").read_text(encoding="utf-8")


def test_a_page_that_shows_what_is_not_printed_or_fails_is_found(tmp_path, fork_server):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```python\nx = 1\nprint(x)\n```\n```text\n1\n```\n\n```python\nprint(x + 1)\n```\n```text\n3\n```\n"
    )
    (wrong,) = differences(page, tmp_path, fork_server)
    assert wrong.startswith("page.md, line 11:\nExpected:\n    3\nGot:\n    2")
    page.write_text("text\n\n```python\nx = 1\nraise KeyError('mine')\n```\n")
    with pytest.raises(AssertionError, match=r"page_page\.py\", line 5, in <module>(.|\n)*KeyError: 'mine'"):
        run(page, tmp_path, fork_server)
