"""Every batch counts though the store refuses the work after a commit, and the work is done
later."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.state_reader import open_store
from tests.support.stores.refusing_tables import REFUSALS, RefusingDataSource
from tests.support.tables.table_jobs import Upserts, last_rows

pytestmark = [pytest.mark.spark, pytest.mark.fault]
# Retention deletes ten versions at once, in addition to the two retained versions. Folds take ten
# files.
BATCHES, MORE_BATCHES = 13, 14


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_query_goes_on_over_restarts_whatever_fails_beside_its_commits(
    spark: SparkSession, tmp_path: Path, refusal: str
) -> None:
    spark.dataSource.register(RefusingDataSource)
    options = {"keys": "id", "minVersionsToRetain": "2"}
    upserts = Upserts(spark, tmp_path, options=options, format="refusing")
    refuses = Path(f"{upserts.table}.refuses")
    refuses.write_text(refusal)
    for batch in range(BATCHES):
        upserts.feed((batch % 3, "a", batch), (10 + batch, "b", batch))
        if batch in (4, 11):
            upserts.run()
    upserts.run()
    assert upserts.rows() == last_rows(upserts.fed)
    reader = open_store(upserts.table)
    assert reader.info().version == BATCHES - 1
    assert reader.info().failed_upkeep > 0
    assert len(state_files(upserts)) == (BATCHES if refusal == "folded files" else 4)
    assert len(upserts.versions()) == (3 if refusal == "folded files" else BATCHES)
    refuses.unlink()
    for batch in range(MORE_BATCHES):
        upserts.feed((batch % 3, "c", batch))
    upserts.run()
    assert upserts.rows() == last_rows(upserts.fed)
    assert reader.info().failed_upkeep == 0
    assert len(state_files(upserts)) < 10
    assert len(upserts.versions()) < 12


def state_files(upserts: Upserts) -> list[str]:
    """The files of the newest state."""
    history = open_store(upserts.table)._history
    return [file.name for file in history.at(history.versions()[-1]).state]
