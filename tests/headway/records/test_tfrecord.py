"""TFRecord files: the framing, and what a reader says of a damaged one."""

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.records.tfrecord import ShardWriter, frame, masked_crc32c, read_records

RECORDS = [b"", b"a", b"record " * 1000]


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "train-00000-of-00001.tfrecord"
    with ShardWriter(path) as writer:
        for record in RECORDS:
            writer.write_groups([[record]], rows=[len(record)])
    return path


def test_what_is_written_is_read(shard):
    assert list(read_records(shard)) == RECORDS


def test_a_writer_counts_rows_and_bytes(tmp_path):
    with ShardWriter(tmp_path / "s") as writer:
        writer.write_groups([[b"abc"]], rows=[7])
        writer.write_many([b"d", b"e"])
    assert writer.rows == [7, 1, 1]
    assert writer.bytes == (tmp_path / "s").stat().st_size == 5 + 3 * 16
    writer.close()


def test_golden_framing():
    assert frame(b"headway").hex() == "0700000000000000bbd79f1168656164776179a18aced3"
    wanted = "a237515dcbcc6fd781d570fe6fc0160ebc7ccd18d32c98148cd478f6a88b3385"
    assert hashlib.sha256(b"".join(map(frame, RECORDS))).hexdigest() == wanted
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@given(cut=st.integers(0, 7000 + 3 * 16 + 1))
@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_ends_at_a_record_or_is_named_with_the_byte(shard, tmp_path, cut):
    data = shard.read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(data[:cut])
    starts = [0, 16, 33, 33 + 16 + 7000]
    if cut in starts:
        assert list(read_records(path)) == RECORDS[: starts.index(cut)]
        return
    with pytest.raises(DataError, match="cut off") as error:
        list(read_records(path))
    assert error.value.where == str(path)
    assert f"record at byte {max(s for s in starts if s < cut)}" in str(error.value)


@given(at=st.integers(0, 7000 + 3 * 16), bit=st.integers(0, 7))
@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_is_named_with_the_byte_its_record_begins_at(shard, tmp_path, at, bit):
    data = bytearray(shard.read_bytes())
    data[at] ^= 1 << bit
    path = tmp_path / "flipped"
    path.write_bytes(data)
    with pytest.raises(DataError, match="checksum") as error:
        list(read_records(path))
    assert f"record at byte {0 if at < 16 else 16 if at < 33 else 33})" in str(error.value)
    assert error.value.fix


def test_records_before_the_damage_are_read(shard):
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    records = read_records(shard)
    assert [next(records), next(records)] == RECORDS[:2]


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        list(read_records(tmp_path / "none"))


def test_tensorflow_reads_the_file(tf, shard):
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(shard))] == RECORDS
