"""An operator's adoption is not undone once the query has run on cowstate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.adoption.operator_adoption import OperatorAdoption
from spark_state.spark.provider.provider_class import ROCKSDB_CLASS
from spark_state.spark.stopped_query.change_folder import ChangeFolder
from spark_state.spark.stopped_query.change_record import ADOPTION, ChangeRecord
from tests.support.provider.checkpoint_on_disk import QueryOnDisk


@pytest.mark.parametrize("moved", [True, False], ids=["partly moved", "not moved"])
def test_a_query_that_ran_after_a_part_of_its_state_was_moved_away_ran_on_cowstate(
    tmp_path: Path, moved: bool
) -> None:
    query = QueryOnDisk(tmp_path / "checkpoint", ROCKSDB_CLASS)
    folder = ChangeFolder.new(query.files, ADOPTION)
    record = ChangeRecord(query.files.url, 1, 1, {}, {"store": "memory://"}, moved=("state",))
    folder.write_record(record)
    if moved:
        query.files.move(query.files.url_of("state/0/0"), f"{folder.path}/state/0/0")
    (query.folder / "offsets" / "2").write_text("v1")
    change = OperatorAdoption(cast(Any, None))
    if not moved:
        change.check_revert(folder, record, force=True)
        return
    with pytest.raises(ConfigurationError, match=r"gone on to batch 2 .* would lose state"):
        change.check_revert(folder, record, force=True)
