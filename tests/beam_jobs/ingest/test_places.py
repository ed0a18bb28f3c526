"""Errors of spans that are ingested straight into a bucket; that the bytes are a folder's is in test_stage.py."""

import pytest

from beam_jobs.ingest.stage import ingest_many
from headway.errors import DataError, StoreError
from headway.monitor import Monitor
from headway.storage.bucket import Bucket


def test_a_mistake_is_named_and_a_bucket_that_is_gone_is_a_store_error(request_for, write_csv, bucket_url, tmp_path):
    request = request_for(write_csv(300), range_size=1024, where="s > 1")
    with pytest.raises(DataError, match="expression 's > 1'"):
        ingest_many([request], [tmp_path], Monitor(), places=[f"{bucket_url}/a"])
    assert not [name for name in Bucket(f"{bucket_url}/a").listing() if ".ranges" in name]
    with pytest.raises(StoreError) as error:
        ingest_many([request_for(write_csv(30))], [tmp_path], Monitor(), places=[f"{bucket_url}-gone/a"])
    assert error.value.where.startswith(f"{bucket_url}-gone/a") and error.value.fix
