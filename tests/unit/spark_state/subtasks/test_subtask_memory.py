"""Within a host's memory limit, input is spilled, too large a state is refused, no row is lost.

A limit of 16 MiB lets state take 8 MiB and input 6 MiB, which is 2 MiB of rows as they arrive.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state import spill_file
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import MemoryLimitError, StateHostError
from spark_state.executor import HostSettings
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.output_rows import OutputPlace, OutputSpool
from spark_state.rocksdb.local_copies import DatabaseHome
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from spark_state.state_descriptor import StateDescriptor
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.subtask_memory import HostMemory, SubtaskMemory
from tests.support.operators.subtasks import KEY_COLUMNS, OUTPUT, Host, OpenHost, operator, table_of
from tests.support.processors.processors import KeepsTotalsAndValues, LongTexts, RunningTotals

LIMIT_MB = 16
TEXT = pa.struct([("text", pa.string())])
FEW, MANY = 30_000, 100_000


def rows(count: int, keys: int = 50) -> pa.Table:
    """Make rows of about 30 bytes each."""
    return table_of([(f"key {number % keys}", number) for number in range(count)], 8)


class SeesInput(RunningTotals):
    """RunningTotals that checks the order of a key's rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [row.value for row in rows]
        assert seen == sorted(seen)
        yield from super().handleInputRows(key, iter([Row(value=v) for v in seen]), timerValues)


class ReadsTexts(LongTexts):
    """LongTexts that only reads its state."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(key=key[0], rows=len(self._text.get()[0]), total=0)


def arrived(host: Host, table: pa.Table) -> pa.Table | SpilledRows:
    """Return the rows that a subtask has received of a table."""
    assert host.session is not None
    with closing(host.session.receive(host.request(0, 0))) as received:
        for batch in table.to_batches(max_chunksize=10_000):
            received.add(batch)
        return received.all()


def memory_of(host: Host) -> HostMemory:
    return host.backends.memory


class TestInput:
    def test_an_input_beyond_its_share_is_spilled_and_another_is_not(
        self, open_host: OpenHost
    ) -> None:
        host = open_host(max_memory_mb=LIMIT_MB)
        assert isinstance(arrived(host, rows(FEW)), pa.Table)
        assert isinstance(arrived(host, rows(MANY)), SpilledRows)
        assert memory_of(host).input.bytes == 0
        assert isinstance(arrived(open_host(), rows(MANY)), pa.Table)

    def test_an_epoch_of_spilled_input_is_like_any_other(self, open_host: OpenHost) -> None:
        limited = open_host(SeesInput(), max_memory_mb=LIMIT_MB)
        output = limited.run(0, rows(MANY))
        assert limited.report is not None
        assert (limited.report.rows_in, limited.report.changed) == (MANY, 50)
        assert output == {
            f"key {key}": (MANY // 50, sum(range(key, MANY, 50))) for key in range(50)
        }
        assert limited.run(1, rows(FEW))["key 1"][0] == (MANY + FEW) // 50

    def test_what_other_subtasks_hold_leaves_less_for_one(self, open_host: OpenHost) -> None:
        host = open_host(max_memory_mb=LIMIT_MB)
        others = memory_of(host).share_of_input(host.spec)
        assert others.take(5 << 20)
        assert isinstance(arrived(host, rows(2 * FEW)), SpilledRows)
        others.give_back()
        assert isinstance(arrived(host, rows(2 * FEW)), pa.Table)

    def test_a_key_may_have_more_rows_than_fit(self, open_host: OpenHost) -> None:
        host = open_host(SeesInput(), max_memory_mb=LIMIT_MB)
        assert host.run(0, rows(MANY, keys=1)) == {"key 0": (MANY, sum(range(MANY)))}

    @pytest.mark.parametrize("keys", [50, 1])
    def test_spilled_rows_do_not_stay_in_memory(self, open_host: OpenHost, keys: int) -> None:
        host = open_host(max_memory_mb=LIMIT_MB)
        table = rows(10 * MANY, keys)
        before = pa.total_allocated_bytes()
        assert host.session is not None
        with closing(host.session.receive(host.request(0, 0))) as received:
            most = 0
            for batch in table.to_batches(max_chunksize=10_000):
                received.add(pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema))
                most = max(most, pa.total_allocated_bytes() - before)
            assert most < 6 << 20
            spilled = received.all()
            assert isinstance(spilled, SpilledRows)
            (keyed,) = spilled.by_name(None).values()
            for part in keyed.by_key(host.spec.processor.key_columns):
                assert part.rows.num_rows
                most = max(most, pa.total_allocated_bytes() - before)
            assert keyed.num_rows == 10 * MANY
        assert most < 6 << 20
        assert table.nbytes > 20 << 20

    @pytest.mark.parametrize("place", ["gone", "a file"])
    def test_a_directory_that_takes_no_files_is_named_and_nothing_is_changed(
        self, open_host: OpenHost, tmp_path: Path, place: str
    ) -> None:
        folder = tmp_path / "local"
        if place == "a file":
            folder.touch()
        host = open_host(
            max_memory_mb=LIMIT_MB, backend=BackendSettings(local_directory=str(folder))
        )
        host.run(0, rows(FEW))
        with pytest.raises(StateHostError) as caught:
            host.run(1, rows(MANY), attempt=2)
        assert f"{folder} does not take the rest" in str(caught.value)
        assert "spark.cowstate.rocksdb.localDirectory" in str(caught.value)
        assert "spark.cowstate.maxMemoryMB" in str(caught.value)
        assert memory_of(host).input.bytes == 0
        if place == "a file":
            folder.unlink()
        folder.mkdir()
        assert host.run(1, rows(MANY), attempt=3)["key 0"][0] == (FEW + MANY) // 50
        assert not [*folder.iterdir()]

    def test_a_disk_that_is_full_in_the_middle_is_an_error_of_the_epoch(
        self, open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = open_host(max_memory_mb=LIMIT_MB)

        class FullFile:
            def __init__(self, file: Any) -> None:
                self._file = file

            def __getattr__(self, name: str) -> Any:
                return getattr(self._file, name)

            def write(self, data: Any) -> int:
                if self._file.tell() + len(data) > 1 << 20:
                    raise OSError(28, "No space left on device")
                return int(self._file.write(data))

        opened = spill_file.tempfile.TemporaryFile
        with monkeypatch.context() as patch:
            patch.setattr(
                spill_file.tempfile, "TemporaryFile", lambda dir: FullFile(opened(dir=dir))
            )
            with pytest.raises(StateHostError, match="No space left on device"):
                host.run(0, rows(MANY), attempt=1)
        assert memory_of(host).input.bytes == 0
        assert host.run(0, rows(MANY), attempt=2)["key 0"][0] == MANY // 50


class TestOutput:
    def test_output_beyond_the_share_of_all_goes_to_the_disk(self, tmp_path: Path) -> None:
        memory = HostMemory()
        spec = operator(tmp_path, max_memory_mb=LIMIT_MB)
        batch = pa.RecordBatch.from_pylist(
            [{"key": "k" * 1_000, "rows": 1, "total": n} for n in range(500)], schema=OUTPUT
        )

        def spool() -> OutputSpool:
            place = OutputPlace(memory.share_of_output(spec), str(tmp_path))
            return OutputSpool(OUTPUT, 1 << 30, place)

        with spool() as first, spool() as second:
            for _ in range(3):
                first.append(batch)
                second.append(batch)
            assert first._file._rolled != second._file._rolled  # type: ignore[attr-defined]
            assert memory.output.bytes <= 2 << 20
            for each in (first, second):
                assert [*each.read()] == [batch] * 3
        assert memory.output.bytes == 0

    def test_a_disk_that_takes_no_output_is_named(self, tmp_path: Path) -> None:
        share = HostMemory().share_of_output(operator(tmp_path, max_memory_mb=0))
        gone = str(tmp_path / "gone")
        batch = pa.RecordBatch.from_pylist([{"key": "a"}], schema=OUTPUT)
        refused = pytest.raises(StateHostError, match=r"output .* and .*/gone does not take")
        with OutputSpool(OUTPUT, 1 << 20, OutputPlace(share, gone)) as spool, refused:
            spool.append(batch)


class TestHeapState:
    def test_state_beyond_its_share_is_refused_with_the_way_to_rocksdb(
        self, open_host: OpenHost
    ) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB)
        host.run(0, rows(1_000, keys=1_000))
        with pytest.raises(MemoryLimitError) as caught:
            host.run(1, rows(20_000, keys=20_000), attempt=2)
        message = str(caught.value)
        for words in (
            "operator 'totals'",
            "spark.cowstate.maxMemoryMB is 16, of which state may take 8.0 MiB",
            "pip install 'cowstate[rocksdb]'",
            "set spark.cowstate.backend to rocksdb",
            "nothing was written",
        ):
            assert words in message
        assert host.run(1, rows(1_000, keys=1_000), attempt=3)["key 5"] == (1, 0)
        assert host.run(2, rows(1_001, keys=1_001), attempt=4)["key 1000"] == (0, 0)

    def test_growth_is_noticed_while_the_epoch_runs(
        self, open_host: OpenHost, tmp_path: Path
    ) -> None:
        calls = tmp_path / "calls"
        host = open_host(LongTexts(1_000, calls), max_memory_mb=LIMIT_MB)
        with pytest.raises(MemoryLimitError):
            host.run(0, rows(60_000, keys=60_000))
        assert 4_000 < len(calls.read_text()) < 20_000

    def test_a_state_that_is_too_large_is_refused_when_it_is_restored(
        self, open_host: OpenHost
    ) -> None:
        table = rows(20_000, keys=20_000)
        open_host(LongTexts(1_000)).run(0, table)
        host = open_host(LongTexts(1_000), run_id="run-2", max_memory_mb=LIMIT_MB)
        with pytest.raises(MemoryLimitError, match=r"spark\.cowstate\.maxMemoryMB is 16"):
            host.run(1, rows(1), attempt=5)
        assert memory_of(host).state.bytes == 0
        host.spec = replace(host.spec, hosts=HostSettings(1, max_memory_mb=512))
        assert host.run(1, rows(1), attempt=6) == {"key 0": (1, 0)}

    def test_the_state_of_other_subtasks_counts_until_they_are_closed(
        self, open_host: OpenHost
    ) -> None:
        first = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB, parallelism=2)
        second = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB, parallelism=2, subtask=1)
        second.backends = first.backends
        assert first.maintenance is not None
        second.open(first.maintenance)
        table = rows(9_000, keys=9_000)
        first.run(0, first.own(table))
        with pytest.raises(MemoryLimitError):
            second.run(0, second.own(table), attempt=1)
        assert first.session is not None
        first.session.close()
        assert len(second.run(0, second.own(table), attempt=2)) > 4_000

    def test_what_undoes_epochs_counts(self, open_host: OpenHost) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=10_000)
        host.run(0, rows(1_000, keys=1_000))
        once = memory_of(host).state.bytes
        assert 1_000_000 < once < 2_000_000
        host.run(1, rows(1_000, keys=1_000))
        assert 2_000_000 < memory_of(host).state.bytes < 3_500_000
        host.run(2, rows(1))
        host.run(3, rows(1))
        assert memory_of(host).state.bytes < 1.2 * once


ROCKSDB = BackendSettings(kind="rocksdb", memory_mb=16)


class TestRocksDB:
    def test_what_an_epoch_changes_has_a_limit(self, open_host: OpenHost) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB + 16, backend=ROCKSDB)
        host.run(0, rows(1_000, keys=1_000))
        with pytest.raises(MemoryLimitError) as caught:
            host.run(1, rows(20_000, keys=20_000), attempt=2)
        assert "what the epoch read and changed" in str(caught.value)
        assert "fewer rows" in str(caught.value)
        assert "of which state may take 8.0 MiB" in str(caught.value)
        assert host.run(1, rows(1_001, keys=1_001), attempt=3)["key 5"] == (1, 0)

    def test_a_state_larger_than_the_limit_is_read_and_changed_bit_by_bit(
        self, open_host: OpenHost
    ) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB + 16, backend=ROCKSDB)
        for epoch in range(10):
            keys = [(f"key {number}", 0) for number in range(2_000 * epoch, 2_000 * epoch + 2_000)]
            host.epoch(epoch, keys)
        reading = operator(Path("unused"), ReadsTexts(1_000)).processor
        host.spec = replace(host.spec, processor=reading)
        output = host.run(10, rows(20_000, keys=20_000))
        assert {rows for rows, _ in output.values()} == {1_000}
        assert memory_of(host).state.bytes < 8 << 20

    def test_a_change_made_before_what_was_read_is_forgotten_stays(
        self, open_host: OpenHost
    ) -> None:
        host = open_host(KeepsTotalsAndValues(), max_memory_mb=1_000, backend=ROCKSDB)
        plain = open_host(KeepsTotalsAndValues(), backend=ROCKSDB, operator="plain")
        script = [[("a", 1), ("b", 2)], [("a", 0), ("a", 3), ("c", 1)], [("b", 5), ("a", 7)]]
        assert host.session is not None

        def forget() -> None:
            assert host.session is not None
            host.session.state.backend.forget_what_was_read()

        for epoch, batch in enumerate(script):
            assert host.epoch(epoch, batch, check=forget) == plain.epoch(epoch, batch)


def skewed(kind: str, folder: Path) -> KeyedStateBackend[Any]:
    """Make a backend with 20,000 values, each hundredth with 100,000 characters; about 28 MiB."""
    key_groups = KeyGroupRange(0, 7)
    backend: KeyedStateBackend[Any]
    if kind == "heap":
        backend = HeapKeyedStateBackend(key_groups, KEY_COLUMNS, PLAIN_FORMS)
    else:
        home = DatabaseHome(folder)
        backend = RocksDBKeyedStateBackend(key_groups, KEY_COLUMNS, PLAIN_FORMS, home)
    state: Any = backend.state(StateDescriptor("text", "value", TEXT, "{}"))
    short, long = "x" * 100, "x" * 100_000
    for number in range(20_000):
        backend.set_current_key((f"key {number}",), number % 8)
        state.update((short if number % 100 else long,))
    return backend


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
class TestValuesOfVeryDifferentSizes:
    def test_a_state_of_half_its_share_is_never_refused(self, tmp_path: Path, kind: Any) -> None:
        backend, of_host = skewed(kind, tmp_path), HostMemory()
        memory, use = SubtaskMemory(of_host), of_host.state
        spec = operator(tmp_path, max_memory_mb=112)
        for _ in range(300):
            memory.check(backend, spec)
            assert use.bytes <= 56 << 20
        backend.close()

    def test_a_state_of_twice_its_share_is_refused(self, tmp_path: Path, kind: Any) -> None:
        backend, of_host = skewed(kind, tmp_path), HostMemory()
        memory, use = SubtaskMemory(of_host), of_host.state
        spec = operator(tmp_path, max_memory_mb=28)

        def check_often() -> None:
            for _ in range(100):
                memory.check(backend, spec)

        with pytest.raises(MemoryLimitError):
            check_often()
        # The message names the measure that decided.
        assert 18 << 20 < use.bytes < 42 << 20
        backend.close()


class TestAfterTheEpoch:
    def test_what_an_epoch_read_in_rocksdb_counts_until_it_is_sealed(
        self, open_host: OpenHost
    ) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=64 + 16, backend=ROCKSDB)
        for epoch in range(3):
            host.run(epoch, rows(3_000, keys=3_000))
        reading = operator(Path("unused"), ReadsTexts(1_000)).processor
        host.spec = replace(host.spec, processor=reading)
        counted: list[int] = []
        host.run(
            3, rows(3_000, keys=3_000), check=lambda: counted.append(memory_of(host).state.bytes)
        )
        assert max(counted) > 3 << 20
        assert memory_of(host).state.bytes < 1 << 20

    def test_a_state_whose_limit_was_taken_away_counts_no_more(self, open_host: OpenHost) -> None:
        host = open_host(LongTexts(1_000), max_memory_mb=LIMIT_MB)
        host.run(0, rows(1_000, keys=1_000))
        assert memory_of(host).state.bytes > 1_000_000
        host.spec = replace(host.spec, hosts=HostSettings(1, max_memory_mb=None))
        host.run(1, rows(1))
        assert memory_of(host).state.bytes == 0


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_the_estimate_is_near_what_python_allocates(open_host: OpenHost, kind: Any) -> None:
    host = open_host(
        LongTexts(300), max_memory_mb=100_000, backend=BackendSettings(kind=kind, memory_mb=16)
    )
    host.run(0, rows(10))
    gc.collect()
    tracemalloc.start()
    try:
        for epoch in (1, 2):
            host.run(epoch, rows(5_000, keys=5_000))
        assert host.session is not None
        state = host.session.state
        estimate = state.memory.measure(state.backend)
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert allocated / 1.7 < estimate < 1.7 * allocated
