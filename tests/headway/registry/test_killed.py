"""kill -9 between any two calls that change the disk: what is left is the old state or the new one, and nothing to mend by hand.

A process of its own forks one child for each place where it may die. The child kills itself right before its n-th call that
changes a file, a folder or a lock, or in the middle of a write, for every n until it lives to the end. Another child, which
never saw the store, then reads what is left, repairs it and does the same again.
"""

import json
import subprocess
import sys

import pytest

CHILDREN = r'''
import builtins, io, json, os, shutil, signal, sys
from pathlib import Path
from headway.registry import gc
from headway.registry.registry import Registry
from headway.storage.store import Store

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def die_at(n):
    """Kill this process right before its n-th change."""
    count = 0

    def step():
        nonlocal count
        count += 1
        if count == n:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, args):
        if event in CHANGES or (event == "open" and args[2] & WRITING):
            step()

    def counted(call):
        def instead(*args, **kwargs):
            step()
            return call(*args, **kwargs)
        return instead

    real = io.open

    def opened(*args, **kwargs):
        file = real(*args, **kwargs)
        if file.writable():
            write = file.write

            def halves(data):
                write(data[: len(data) // 2])
                file.flush()
                step()
                return write(data[len(data) // 2 :])

            try:
                file.write = halves
            except AttributeError:  # a raw file: copyfile's, which sendfile fills
                pass
        return file

    sys.addaudithook(hook)
    os.fsync, os.sendfile = counted(os.fsync), counted(os.sendfile)
    io.open = builtins.open = opened


def collected(registry):
    with gc.removal_lock(registry.store) as remover:
        gc.remove(remover, gc.collect(registry.store, keep_runs=0, keep_versions=0), keep_versions=0)


def committed(registry):
    with registry.store.open("ingest", "b" * 32, {}) as staging:
        for name in ("one", "two"):
            (staging.path / name).write_text("rows" * 100)
        staging.commit(result={})


ACTIONS = {
    "commit": committed,
    "promote": lambda r: r.promote(3, reason="better"),
    "rollback": lambda r: r.champion().number == 1 or r.rollback(1, reason="worse"),
    "alias": lambda r: r.set_alias("stable", 3),
    "publish": lambda r: r.publish(Path(sys.argv[1]).with_name("model"), {"run": "next"}),
    "gc": collected,
}


def state(registry):
    """What a reader sees, before and after the repair that a run begins with."""
    def look():
        champion = registry.champion()
        served = registry.serving / str(registry.history()[-1].serving) / "saved_model.pb"
        return {
            "champion": champion.number,
            "whole": (champion.saved_model / "saved_model.pb").read_text() == f"graph {champion.number}",
            "served": served.read_text() if served.exists() else None,
            "highest": max(int(p.name) for p in registry.serving.iterdir() if p.name.isdigit()),
            "alias": registry.aliases().get("stable"),
            "versions": [v.number for v in registry.versions()],
            "outputs": [folder.name[0] for _, folder in registry.store.all_outputs()],
            "problems": [f"{path.name}: {text}" for path, text in [*registry.verify(), *registry.store.verify()]],
        }
    found = {"left": look()}
    registry.store.sweep()
    found["repaired"] = registry.repair()
    found["after"] = look()
    found["hidden"] = [str(p) for p in registry.store.root.rglob("*") if "@" in p.name or p.name.startswith(".c")]
    return found


def child(work):
    """What `work` gives, done in a process of its own; None when that was killed."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            os.write(into, json.dumps(work()).encode())
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert status == 0, "a child failed"
    return json.loads(said)


template, action, links = Path(sys.argv[1]), ACTIONS[sys.argv[2]], sys.argv[3] == "links"
if not links:
    def refuse(*_):
        raise PermissionError(1, "no links here")
    os.link = refuse


def killed(registry, n):
    die_at(n)
    action(registry)
    return {}


def again(registry):
    action(registry)
    return state(registry)


for n in range(1, 1000, int(sys.argv[4])):
    root = template.with_name("killed") / "store"
    shutil.rmtree(root.parent, ignore_errors=True)
    shutil.copytree(template, root)
    registry = Registry(Store(root), "flights")
    ended = child(lambda: killed(registry, n)) is not None
    found = child(lambda: state(registry))
    print(json.dumps({"ended": ended, **found, "again": child(lambda: again(registry))["after"]}), flush=True)
    if ended:
        break
'''


@pytest.fixture
def killed_at_every_write(registry, tmp_path):
    """killed_at_every_write(action, links, every) -> what each kill left; the last is that of the process that lived.

    Versions 1 to 4 are there; 1 and then 2 were champions, `stable` is version 1; nothing ever pointed at 4.
    """
    for number in range(1, 5):
        model = tmp_path / "model"
        model.mkdir(exist_ok=True)
        (model / "saved_model.pb").write_text(f"graph {number}")
        (model / "variables").mkdir(exist_ok=True)
        (model / "variables" / "variables.index").write_text("weights" * 100)
        registry.publish(model, {"run": str(number)})
        if number < 3:
            registry.promote(number, reason="better")
    registry.set_alias("stable", 1)
    with registry.store.open("ingest", "a" * 32, {}) as staging:
        (staging.path / "data").write_text("rows")
        staging.commit(result={})

    def kill(action, links="links", every=1):
        arguments = [sys.executable, "-c", CHILDREN, str(registry.store.root), action, links, str(every)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return kill


UNSERVED = "is gone: version {} is the champion and not served; promote it again"


def check(found, champions):
    """What holds wherever the process died."""
    for one in found:
        left, after = one["left"], one["after"]
        assert left["whole"] and left["champion"] in champions
        assert left["highest"] == 2 or left["champion"] == 3, "served before promoted"
        if left["served"] is None:  # the pointer had moved, and the copy was not in place: the one thing to mend
            (problem,) = left["problems"]
            assert problem.endswith(UNSERVED.format(left["champion"])) and one["repaired"]
        else:
            assert left["problems"] == [] and not one["repaired"]
        assert after["problems"] == [] and after["champion"] == left["champion"] and one["hidden"] == []
        assert after["served"] == f"graph {after['champion']}"
        assert one["again"]["problems"] == []


@pytest.mark.chaos
@pytest.mark.parametrize("links", ["links", "copies"])
def test_a_promotion_killed_anywhere_leaves_the_old_champion_or_the_new_one(killed_at_every_write, links):
    found = killed_at_every_write("promote", links)
    check(found, champions=(2, 3))
    order = [one["left"]["champion"] for one in found]
    assert order == sorted(order) and {*order} == {2, 3} and len(found) > 25, "one write decides"
    assert any(one["repaired"] for one in found), "and one of the kills came between the pointer and the copy"
    assert all(one["again"]["champion"] == 3 for one in found)


@pytest.mark.chaos
def test_a_rollback_killed_anywhere_leaves_the_old_champion_or_the_one_before(killed_at_every_write):
    champions = [one["left"]["champion"] for one in killed_at_every_write("rollback") if not one["ended"]]
    assert champions == sorted(champions, reverse=True) and {*champions} == {2, 1}


@pytest.mark.chaos
def test_an_alias_killed_anywhere_points_where_it_did_or_where_it_shall(killed_at_every_write):
    found = killed_at_every_write("alias")
    check(found, champions=(2,))
    places = [one["left"]["alias"] for one in found]
    assert places == sorted(places) and {*places} == {1, 3} and all(one["again"]["alias"] == 3 for one in found)


@pytest.mark.chaos
def test_a_publication_killed_anywhere_leaves_a_whole_version_or_none(killed_at_every_write):
    found = killed_at_every_write("publish")
    check(found, champions=(2,))
    counts = [len(one["left"]["versions"]) for one in found]
    assert counts == sorted(counts) and {*counts} == {4, 5}
    assert all(one["left"]["versions"] == list(range(1, count + 1)) for one, count in zip(found, counts, strict=True))


@pytest.mark.chaos
def test_a_collection_killed_anywhere_leaves_each_version_whole_or_gone(killed_at_every_write):
    found = killed_at_every_write("gc")
    check(found, champions=(2,))
    assert {tuple(one["left"]["versions"]) for one in found} == {(1, 2, 3, 4), (1, 2, 4), (1, 2)}
    assert all(one["again"]["versions"] == [1, 2] and one["left"]["alias"] == 1 for one in found)


@pytest.mark.chaos
def test_a_commit_killed_anywhere_leaves_a_whole_output_or_none(killed_at_every_write):
    found = killed_at_every_write("commit")
    check(found, champions=(2,))
    order = [one["left"]["outputs"] for one in found]
    assert order == sorted(order) and {*map("".join, order)} == {"a", "ab"} and len(found) > 10
    assert all(one["again"]["outputs"] == ["a", "b"] for one in found)


@pytest.mark.parametrize("action", ["promote", "publish", "commit"])
def test_an_action_killed_at_some_places_leaves_the_state_before_or_the_one_after(killed_at_every_write, action):
    """A few of the kills of `make chaos`."""
    found = killed_at_every_write(action, every=5)
    check(found, champions=(2, 3))
    states = [(one["left"]["champion"], len(one["left"]["versions"]), len(one["left"]["outputs"])) for one in found]
    after = {"promote": (3, 4, 1), "publish": (2, 5, 1), "commit": (2, 4, 2)}[action]
    assert states == sorted(states) and {*states} == {(2, 4, 1), after}
