"""The op in C++ and its twin in TensorFlow's own ops: the same tensors, or both refuse; and damage is named, never a crash."""

import gzip
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.records import wire
from headway.records.tfrecord import frame
from headway.schema.columns import Column
from tfcore.ops.example_parser import parse_examples, read_examples, read_runs

REFUSED = (tf.errors.DataLossError, tf.errors.InvalidArgumentError)
TYPES = {"i": "int64", "f": "float32", "s": "bytes"}


def columns(nullable):
    """A scalar, a vector and a list of each type."""
    return [
        Column(name=letter + kind, type=TYPES[letter], nullable=nullable and kind != "l", shape=shape)
        for letter in TYPES
        for kind, shape in {"": (), "v": (2,), "l": (None,)}.items()
    ]


OPTIONAL, REQUIRED = columns(True), columns(False)


def feature(letter, values, packed=True):
    """A Feature; None: one that holds nothing."""
    if values is None:
        return b""
    if letter == "s":
        return wire.field(b"".join(wire.field(v) for v in values), wire.BYTES)
    if letter == "f":
        each = [np.float32(v).tobytes() for v in values]
        body = wire.field(b"".join(each)) if packed else b"".join(b"\x0d" + e for e in each)
        return wire.field(body if values else b"", wire.FLOATS)
    each = [wire.varints(np.array([v], np.int64)) for v in values]
    body = wire.field(b"".join(each)) if packed else b"".join(b"\x08" + e for e in each)
    return wire.field(body if values else b"", wire.INTS)


def entry(name, value, swapped=False):
    parts = [wire.field(name.encode()), wire.field(value, b"\x12")]
    return wire.field(b"".join(reversed(parts) if swapped else parts))


def example(*entries):
    return wire.field(b"".join(entries))


VALUES = {
    "i": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 300)),
    "f": st.floats(width=32),
    "s": st.one_of(st.binary(max_size=30), st.binary(min_size=120, max_size=200)),
}


@st.composite
def good_records(draw):
    """Records that have every column, in any order and layout, and others beside them."""
    entries = []
    for column in OPTIONAL:
        letter = column.name[0]
        size = {"v": st.just(2), "l": st.integers(0, 5)}.get(column.name[1:], st.just(1))
        count = draw(size)
        values = draw(st.lists(VALUES[letter], min_size=count, max_size=count))
        entries.append(entry(column.name, feature(letter, values, draw(st.booleans())), draw(st.booleans())))
    if draw(st.booleans()):
        entries.append(entry("other", feature("i", [1, 2])))
    return example(*draw(st.permutations(entries)))


@st.composite
def odd_records(draw):
    """Entries that are missing, empty, twice there, of another type or of another length."""
    names = st.sampled_from([c.name for c in OPTIONAL])
    entries = []
    for name in draw(st.lists(names, max_size=12)):
        letter = draw(st.sampled_from([name[0]] * 6 + ["i", "f", "s"]))
        size = {"v": 2, "l": 3}.get(name[1:], 1)
        count = draw(st.sampled_from([size] * 5 + [0, 1, 3]))
        values = draw(st.one_of(st.none(), *[st.lists(VALUES[letter], min_size=count, max_size=count)] * 5))
        entries.append(entry(name, feature(letter, values, draw(st.booleans()))))
    return example(*entries)


@pytest.fixture(scope="module")
def by_op(op, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    files = iter(range(1 << 30))

    def read(records, wanted):
        path = folder / f"{next(files)}.tfrecord"
        path.write_bytes(b"".join(map(frame, records)))
        try:
            return read_runs([str(path)], [0], [len(records)], wanted)
        finally:
            path.unlink()

    return read


def by_twin(records, wanted):
    return parse_examples(tf.constant(records, tf.string), wanted)


def outcome(reader, *arguments):
    try:
        return {name: value.numpy() for name, value in reader(*arguments).items()}
    except REFUSED as error:
        return error


def assert_same(found, wanted):
    if isinstance(wanted, Exception):
        assert isinstance(found, Exception), f"the twin says {wanted}, the op gives {found}"
        return
    assert not isinstance(found, Exception), f"the op says {found}, the twin gives {wanted}"
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype and found[name].shape == wanted[name].shape, name
        # bit by bit: NaN and -0.0 too
        same = found[name].tolist() == wanted[name].tolist() or found[name].tobytes() == wanted[name].tobytes()
        assert same, name


@settings(max_examples=30)
@given(st.lists(good_records(), min_size=1, max_size=4))
def test_both_read_what_was_written(by_op, records):
    for wanted in (OPTIONAL, REQUIRED):
        twin = outcome(by_twin, records, wanted)
        assert not isinstance(twin, Exception), twin
        assert_same(outcome(by_op, records, wanted), twin)


@given(odd_records())
def test_both_make_the_same_of_odd_records(by_op, record):
    for wanted in (OPTIONAL, REQUIRED):
        found, twin = outcome(by_op, [record], wanted), outcome(by_twin, [record], wanted)
        assert_same(found, twin)
        assert not isinstance(twin, Exception) or type(found) is type(twin), f"{found} and {twin}"


def damaged(record, other, random):
    """A record with bits flipped, cut off, or with pieces of another in it."""
    data = bytearray(record)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(0, len(data) + 1))
        match random.integers(0, 6):
            case 0 | 1 if at < len(data):
                data[at] ^= 1 << int(random.integers(0, 8))
            case 2 if at < len(data):
                data[at] = int(random.integers(0, 256))
            case 3:
                del data[at : at + int(random.integers(1, 4))]
            case 4:
                data[at:at] = bytes([int(random.choice([0, 1, 10, 18, 26, 128]))])
            case _:
                start = int(random.integers(0, len(other)))
                data[at:at] = other[start : start + int(random.integers(1, 30))]
    return bytes(data)


def seeds():
    """Records with a little of everything."""
    values = {"i": [7, -1, 300], "f": [1.5, -0.0, 2.5], "s": [b"ab", b"", b"x" * 140]}
    sizes = {"": 1, "v": 2, "l": 3}
    found = []
    for packed in (True, False):
        whole = [entry(c.name, feature(c.name[0], values[c.name[0]][: sizes[c.name[1:]]], packed)) for c in OPTIONAL]
        found += [example(*whole), example(*whole, entry("other", feature("i", [1])), whole[0]), example(*whole[::3])]
    return [*found, example(*whole[:3]) + example(*whole[3:]), b"", example()]


@pytest.mark.parametrize("start", range(4))
def test_both_make_the_same_of_damaged_records(by_op, start):
    records = seeds()
    refused = differ = 0
    for seed in range(start * 150, (start + 1) * 150):
        random = np.random.default_rng(seed)
        record = damaged(records[seed % len(records)], records[random.integers(0, 6)], random)
        wanted = (OPTIONAL, REQUIRED)[seed % 2]
        twin = outcome(by_twin, [record], wanted)
        refused += isinstance(twin, Exception)
        try:
            found = outcome(by_op, [record], wanted)
            assert_same(found, twin)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {record!r}") from error
        differ += isinstance(twin, Exception) and type(found) is not type(twin)
    assert 20 < refused < 150
    # both call damage DataLossError; of a record that lacks a column as well either may be said
    assert differ <= refused // 20


PECULIAR = {
    "the last of two wins": ([entry("i", feature("i", [1])), entry("i", feature("i", [2]))], "i", 2),
    "an empty last one does not win where a value is required": (
        [entry("i", feature("i", [1])), entry("i", b"")],
        "i",
        1,
    ),
    "behind a packed run nothing counts": (
        [entry("i", wire.field(wire.field(b"\x05") + b"\x08\x06", wire.INTS))],
        "i",
        5,
    ),
}


@pytest.mark.parametrize("case", PECULIAR)
def test_what_parse_example_does_is_what_the_op_does(by_op, case):
    entries, name, value = PECULIAR[case]
    wanted = [Column(name=name, type=TYPES[name[0]], nullable=False)]
    for reader in (by_op, by_twin):
        assert reader([example(*entries)], wanted)[name].numpy().tolist() == [value]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], "is missing"),
        ([entry("i", feature("f", [1]))], "holds float32, not int64"),
        ([entry("i", feature("f", []))], "holds float32, not int64"),
        ([entry("i", feature("i", [1, 2]))], "holds 2 values, not 1"),
        ([entry("i", b"\x22\x00")], "no known kind"),
        ([entry("i", wire.field(b"\x08\x06" + wire.field(b"\x05"), wire.INTS))], "are damaged"),
    ],
)
def test_a_record_that_does_not_fit_is_named(by_op, entries, problem):
    wanted = [Column(name="i", type="int64", nullable=False)]
    good = example(entry("i", feature("i", [1])))
    with pytest.raises(REFUSED, match=r"tfrecord: .*feature 'i' .* \(record 2 at byte \d+\)"):
        by_op([good, good, example(*entries)], wanted)
    with pytest.raises(REFUSED, match=problem):
        by_op([example(*entries)], wanted)
    with pytest.raises(REFUSED):
        by_twin([good, good, example(*entries)], wanted)


ROWS = [Column(name="i", type="int64", nullable=True), Column(name="sl", type="bytes", nullable=False, shape=(None,))]


def numbered(first, count):
    """Rows that say which they are."""
    return [
        example(
            *([entry("i", feature("i", [n]))] if n % 7 else []),
            entry("sl", feature("s", [b"%d" % n] * (n % 4) + [b""])),
        )
        for n in range(first, first + count)
    ]


def write(path, records):
    data = b"".join(map(frame, records))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return data


def together(dataset):
    chunks = [{name: value.numpy() for name, value in chunk.items()} for chunk in dataset]
    return [len(chunk["i"]) for chunk in chunks], {
        name: np.concatenate([chunk[name] for chunk in chunks]).tolist() for name in chunks[0]
    }


@pytest.mark.parametrize("names", [["a", "b", "c"], ["a.gz", "b.gz"], ["a", "b.gz", "c"], ["a"], ["a.gz"]])
@pytest.mark.parametrize("cycle", [1, 2])
def test_a_folder_of_files_comes_in_the_same_chunks(op, tmp_path, names, cycle):
    first = 0
    for name, count in zip(names, [100, 333, 64], strict=False):
        write(
            tmp_path / name.replace("a", "a.tfrecord").replace("b", "b.tfrecord").replace("c", "c.tfrecord"),
            numbered(first, count),
        )
        first += count
    by_native, by_python = (
        together(read_examples(tmp_path, ROWS, rows=50, cycle=cycle, native=native)) for native in (True, False)
    )
    assert by_native == by_python
    numbers = [n if present else None for n, present in zip(by_native[1]["i"], by_native[1]["i/present"], strict=True)]
    wanted = [n if n % 7 else None for n in range(first)]
    assert sorted(numbers, key=str) == sorted(wanted, key=str)
    if cycle == 1 or len(names) == 1:
        assert numbers == wanted


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_runs_come_in_any_order_and_side_by_side(op, tmp_path, suffix):
    paths = [str(tmp_path / f"{i}{suffix}") for i in range(3)]
    for i, path in enumerate(paths):
        write(Path(path), numbered(i * 1000, 700))
    random = np.random.default_rng(0)
    which, first = random.integers(0, 3, 90), random.integers(0, 600, 90)
    count = random.integers(0, 100, 90)
    runs = tf.data.Dataset.from_tensor_slices((which, first, count)).batch(7)
    read = runs.map(
        lambda w, f, c: read_runs(tf.gather(paths, w), f, c, ROWS), num_parallel_calls=4, deterministic=True
    )
    _, found = together(read)
    wanted = [w * 1000 + n for w, f, c in zip(which, first, count, strict=True) for n in range(f, f + c)]
    assert found["i"] == [n if n % 7 else 0 for n in wanted]
    assert found["sl/lengths"] == [n % 4 + 1 for n in wanted]


def test_a_file_that_is_replaced_is_read_anew(op, tmp_path):
    path = tmp_path / "x"
    for count in (200, 150, 300):
        write(path, [example(entry("i", feature("i", [count])))] * count)
        found = read_runs([str(path)], [count - 10], [10], ROWS[:1])
        assert found["i"].numpy().tolist() == [count] * 10


def test_a_file_with_fewer_records_than_asked_for_is_named(op, tmp_path):
    write(tmp_path / "short", numbered(0, 70))
    with pytest.raises(tf.errors.DataLossError, match=r"short: the file ends 6 records early \(before record 76\)"):
        read_runs([str(tmp_path / "short")], [0], [76], ROWS)


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_anywhere_in_a_file_is_named_with_its_place(op, tmp_path, damage):
    records = numbered(0, 6)
    data = write(tmp_path / "whole", records)
    begins = np.cumsum([0] + [len(frame(record)) for record in records])
    for at in range(len(data)):
        number = int(np.searchsorted(begins, at, side="right")) - 1
        if damage == "cut" and at == begins[number]:
            continue  # a shorter file, and whole: the test above
        path = tmp_path / f"damaged-{at}"
        path.write_bytes(data[:at] if damage == "cut" else data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(tf.errors.DataLossError) as said:
            read_runs([str(path)], [0], [6], ROWS)
        assert f"damaged-{at}: the " in str(said.value) and f"(record {number} at byte {begins[number]})" in str(
            said.value
        )


def test_damage_in_a_gzip_file_is_never_a_crash_and_never_fewer_rows(op, tmp_path):
    write(tmp_path / "whole.gz", numbered(0, 40))
    data = (tmp_path / "whole.gz").read_bytes()
    for at in [13, *range(20, len(data), len(data) // 3), len(data) - 8, len(data) - 1]:
        for kind in ("cut", "flip"):
            path = tmp_path / f"{kind}-{at}.gz"
            path.write_bytes(data[:at] if kind == "cut" else data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
            for native in (True, False):
                with pytest.raises(tf.errors.DataLossError, match=path.name):
                    together(read_examples(path, ROWS, rows=16, native=native))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("native", [True, False])
def test_a_file_cut_off_before_a_record_is_never_a_shorter_one(op, tmp_path, native, zipped):
    # TensorFlow's own reader takes a header of fewer than twelve bytes for the end
    first, second = map(frame, numbered(0, 2))
    for cut in (1, 8, 11, 12, len(first) + 1, len(first) + 11, len(first) + 12, len(first) + len(second) - 1):
        data = (first + second)[:cut]
        path = tmp_path / f"cut-{cut}"
        path.write_bytes(gzip.compress(data) if zipped else data)
        place = rf"\(record 1 at byte {len(first)}\)" if cut >= len(first) else r"\(record 0 at byte 0\)"
        with pytest.raises(tf.errors.DataLossError, match=f"cut-{cut}: the file is cut off in a record.*{place}"):
            together(read_examples(path, ROWS, native=native))
    path.write_bytes(gzip.compress(first) if zipped else first)
    assert together(read_examples(path, ROWS, native=native))[0] == [1]


def test_the_iterator_of_a_dataset_without_the_op_is_saved_and_restored(tmp_path):
    write(tmp_path / "a.tfrecord", numbered(0, 50))
    dataset = read_examples(tmp_path, ROWS, rows=16, native=False).map(lambda chunk: chunk["sl/lengths"])
    found = iter(dataset)
    next(found)
    saved = tf.train.Checkpoint(found=found).save(str(tmp_path / "saved"))
    rest = [chunk.numpy().tolist() for chunk in found]
    again = iter(dataset)
    tf.train.Checkpoint(found=again).restore(saved).assert_consumed()
    assert [chunk.numpy().tolist() for chunk in again] == rest and len(rest) == 3


@pytest.mark.parametrize("name", ["b.tfrecord", "b.tfrecord.gz"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("bad", [b"\xff\xff", b"\x0a\x05\x0a", b"\x0a\x04\x0a\x02\x12\x7f"])
def test_a_record_that_is_no_example_is_data_loss_with_its_file_and_number(op, tmp_path, native, bad, name):
    write(tmp_path / "a.tfrecord", numbered(0, 30))
    before = numbered(0, 1500)
    write(tmp_path / name, [*before, bad, *numbered(0, 5)])
    place = rf"\(record 1500 at byte {sum(len(frame(record)) for record in before)}\)"
    with pytest.raises(tf.errors.DataLossError, match=rf"b\.tfrecord(\.gz)?: not a tf.train.Example.*{place}"):
        together(read_examples(tmp_path, ROWS, rows=16, native=native))
    if not native:
        with pytest.raises(tf.errors.DataLossError, match=r"not a tf.train.Example \(record 2\)"):
            parse_examples(tf.constant([*numbered(0, 2), bad]), ROWS)


def test_the_first_record_that_is_no_example_is_the_one_that_is_named():
    for at in range(6):
        records = numbered(0, 7)
        records[at] = records[6] = b"\xff\xff"
        with pytest.raises(tf.errors.DataLossError, match=rf"\(record {at}\)"):
            parse_examples(tf.constant(records), ROWS)
    records[2] = example(entry("i", feature("f", [1])))  # of other columns
    with pytest.raises(tf.errors.InvalidArgumentError):
        parse_examples(tf.constant(records), ROWS)


@pytest.mark.parametrize("nullable", [True, False])
def test_values_of_no_known_field_are_damage_though_protobuf_takes_them(by_op, nullable):
    record = example(entry("i", wire.field(b"\x98\x01\x01" + wire.field(b"\x05"), wire.INTS)))
    tf.train.Example.FromString(record)
    for reader in (by_op, by_twin):
        with pytest.raises(tf.errors.DataLossError, match=r"\(record 0"):
            reader([record], [Column(name="i", type="int64", nullable=nullable)])


@pytest.mark.parametrize("native", [True, False])
def test_a_record_of_other_columns_is_an_invalid_argument(op, tmp_path, native):
    write(tmp_path / "a.tfrecord", [*numbered(0, 3), example(entry("i", feature("f", [1])))])
    with pytest.raises(tf.errors.InvalidArgumentError):
        together(read_examples(tmp_path, ROWS, native=native))


def test_a_dataset_without_the_op_is_one_like_any_other(tmp_path):
    write(tmp_path / "a.tfrecord", numbered(0, 30))
    dataset = read_examples(tmp_path, ROWS, rows=16, native=False)
    assert isinstance(dataset, tf.data.Dataset)
    found = iter(dataset)
    assert found.element_spec.keys() == next(found).keys()
    assert [len(chunk) for chunk in dataset.map(lambda chunk: chunk["i"])] == [16, 14]
    total = tf.function(
        lambda: dataset.reduce(tf.constant(0, tf.int64), lambda n, chunk: n + tf.size(chunk["i"], tf.int64))
    )
    assert total() == 30

    @tf.function
    def counted():
        rows = 0
        for chunk in dataset:
            rows += tf.size(chunk["i"])
        return rows

    assert counted() == 30


def test_a_missing_file_is_named(op, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_examples(tmp_path / "none", ROWS)
    with pytest.raises(DataError, match="holds no"):
        read_examples(tmp_path, ROWS)
    with pytest.raises(tf.errors.NotFoundError, match="none"):
        read_runs([str(tmp_path / "none")], [0], [1], ROWS)


@pytest.mark.slow
def test_the_parser_survives_a_fuzzer_under_sanitizers(tmp_path, sanitized):
    write(tmp_path / "seeds", seeds())
    program = sanitized("fuzz.cc", "-g1")  # lines for its report
    done = subprocess.run(
        [program, tmp_path / "seeds", "30000"], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    counts = dict(zip(done.stdout.split()[::2], map(int, done.stdout.split()[1::2]), strict=True))
    assert all(count > 1000 for count in counts.values()), done.stdout
