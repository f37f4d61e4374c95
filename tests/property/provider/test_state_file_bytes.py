"""State files read back as written, also by pyarrow, and reading detects any damage."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_file import ProviderFile, decode_provider_file
from checkpoint_store.provider.provider_file_names import ProviderFileName
from tests.support.examples import examples
from tests.support.provider.provider_file_bytes import file_bytes
from tests.support.provider.provider_jvm import ProviderJvm, WordValue, key_bytes

pytestmark = pytest.mark.spark

Row = tuple[int, WordValue | None]
NAME = ProviderFileName(7, 3, f"{0xAA:016x}", f"{0xA9:016x}")
MASKS = st.integers(1, 255)
numbers = st.integers(0, 1 << 40)
values = st.builds(WordValue, st.integers(1, 50), st.integers(0, 9))
rows_of_files = st.lists(st.tuples(numbers, st.none() | values), max_size=30)
# Each of these values fills a record batch; the longer values fill several compressed blocks.
large_values = st.builds(WordValue, st.sampled_from([31_000, 110_000]), st.integers(0, 9))
large_rows = st.lists(st.tuples(numbers, st.none() | large_values), min_size=6, max_size=12)
BATCH_BYTES = 240 << 10
MAGIC_BYTES = 8
END_OF_STREAM_BYTES = 8


def lines_of(rows: list[Row]) -> str:
    return "\n".join(f"{number} {value or '-'}" for number, value in rows)


def opened(data: bytes) -> Any:
    return pa.ipc.open_file(pa.BufferReader(data))


def decoded(data: bytes) -> ProviderFile:
    return decode_provider_file(data, NAME, Source("file:///checkpoint", str(NAME)))


def check_round_trip(files: Any, rows: list[Row]) -> int:
    """Write the rows, read the rows here and in the JVM, and return the number of record
    batches."""
    data = files.write(lines_of(rows))
    assert files.read(data) == lines_of(rows)
    opened(data).read_all().validate(full=True)
    batches = decoded(data).batches
    read = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert read == [(key_bytes(number), value and value.to_bytes()) for number, value in rows]
    return len(batches)


def columns_of(files: Any, rows: list[Row]) -> list[str]:
    """The columns of a file of these rows, with their types."""
    schema = opened(files.write(lines_of(rows))).schema
    return [f"{column.name} {column.type}" for column in schema]


def test_rows_are_read_as_they_were_written(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")

    @examples(50)
    @given(rows_of_files)
    @example([])
    @example([(1, None)] * 9)
    def agree(rows: list[Row]) -> None:
        assert check_round_trip(files, rows) == bool(rows)

    agree()


def test_rows_of_several_record_batches_are_read_as_they_were_written(
    provider_jvm: ProviderJvm,
) -> None:
    files = provider_jvm.new("StateFileBytes")

    @settings(max_examples=10)
    @given(large_rows)
    @example([(n, WordValue(110_000, n) if n % 2 else None) for n in range(24)])
    def agree(rows: list[Row]) -> None:
        values = sum(value is not None for _, value in rows)
        assert check_round_trip(files, rows) == values + (rows[-1][1] is None)

    agree()


def test_rows_of_one_width_are_a_column_of_this_width(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")
    fixed: list[Row] = [(number * 3, WordValue(2, number)) for number in range(9_000)]
    key, value = "fixed_size_binary[32]", "fixed_size_binary[16]"
    assert columns_of(files, fixed[:9]) == [f"key {key}", f"value {value}"]
    assert columns_of(files, [*fixed[:9], (3, None)]) == [f"key {key}", f"value {value}"]
    assert columns_of(files, fixed) == [
        *(f"key {key}", "other_key binary"),
        *(f"value {value}", "other_value binary"),
    ]
    assert columns_of(files, [(0, WordValue(2, 1)), (1, None)]) == ["key binary", f"value {value}"]
    assert columns_of(files, [(0, None)]) == [f"key {key}", "value binary"]
    assert columns_of(files, [(0, WordValue(40, 1))]) == [f"key {key}", "value binary"]
    assert columns_of(files, []) == ["key binary", "value binary"]


def test_widths_may_change_from_row_to_row(provider_jvm: ProviderJvm) -> None:
    """The width of a key is that of its number modulo 3."""
    files = provider_jvm.new("StateFileBytes")
    alike = st.tuples(numbers, st.none() | values, st.sampled_from([1, 2, 7, 3_000, 6_000]))

    @settings(max_examples=10)
    @given(st.lists(alike, min_size=1, max_size=6))
    @example(
        [(0, WordValue(2, 1), 6_000), (1, WordValue(3, 1), 1), (0, None, 6_000), (2, None, 6_000)]
    )
    def agree(runs: list[tuple[int, WordValue | None, int]]) -> None:
        check_round_trip(files, [(key, value) for key, value, count in runs for _ in range(count)])

    agree()


@pytest.mark.parametrize("block", [1, 127, 128, 4_000, 256 << 10, (256 << 10) + 1, 700_000])
def test_arrow_reads_compressed_buffers(provider_jvm: ProviderJvm, block: int) -> None:
    files = provider_jvm.new("StateFileBytes")
    patterns = random.Random(1).randbytes(block), bytes(block)
    for data in (*patterns, b"".join(patterns), b"".join(patterns[::-1])):
        encoded = bytes(files.encoded(data))
        length, body = int.from_bytes(encoded[:8], "little", signed=True), encoded[8:]
        assert len(body) <= len(data)
        if length == -1:
            assert body == data
        else:
            assert length == len(data)
            assert pa.Codec("zstd").decompress(body, length).to_pybytes() == data
    assert len(files.encoded(bytes(700_000))) < 10_000


def test_a_record_batch_has_few_bytes(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")
    full = BATCH_BYTES // len(key_bytes(0))
    rows: list[Row] = [(0, None)] * (2 * full + 1)
    data = files.write(lines_of(rows))
    reader = opened(data)
    lengths = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
    assert lengths == [full, full, 1]
    assert files.read(data) == lines_of(rows)


def test_the_schema_carries_what_the_file_is(provider_jvm: ProviderJvm) -> None:
    data = provider_jvm.new("StateFileBytes").write(lines_of([(1, WordValue(1, 1))]))
    metadata = {key.decode(): value.decode() for key, value in opened(data).schema.metadata.items()}
    assert metadata["cowstate.format"] == "1"
    assert metadata["cowstate.kind"] == "changelog"
    assert metadata["cowstate.version"] == "7"
    assert metadata["cowstate.unique"] == "00000000000000aa"
    assert metadata["cowstate.base"] == "00000000000000a9"
    schemas = decoded(data).schemas
    assert [name for name, _ in schemas.key.fields] == ["prefix", "number", "more"]
    assert [name for name, _ in schemas.value.fields] == ["value"]


def summed_positions(data: bytes) -> set[int]:
    """The positions of all bytes of record batches, and of the footer to the end of the file."""
    batches = MAGIC_BYTES + 8 + int.from_bytes(data[MAGIC_BYTES + 4 : MAGIC_BYTES + 8], "little")
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    return {*range(batches, footer - END_OF_STREAM_BYTES), *range(footer, len(data))}


def test_a_byte_that_changes_is_found_or_is_of_no_account(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")

    @examples(10)
    @given(st.lists(st.tuples(numbers, st.none() | values), max_size=6), MASKS)
    @example([], 1)
    def agree(rows: list[Row], mask: int) -> None:
        data = files.write(lines_of(rows))
        outcomes = files.readFlipped(data, mask)
        assert set(outcomes) <= {"r", "s"}
        harmless = {place for place, outcome in enumerate(outcomes) if outcome == "s"}
        assert harmless & summed_positions(data) == set()

    agree()


def test_a_file_that_was_cut_is_refused_wherever_the_cut_is(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")

    @examples(10)
    @given(st.lists(st.tuples(numbers, st.none() | values), max_size=6))
    def agree(rows: list[Row]) -> None:
        data = files.write(lines_of(rows))
        assert set(files.readCut(data)) == {"r"}

    agree()


def test_python_refuses_what_the_provider_refuses(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")
    rows: list[Row] = [(number, WordValue(3, number)) for number in range(3)]
    data = files.writeWithChecksums(lines_of(rows))
    flipped = [
        data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :] for place in range(len(data))
    ]
    problems = set()
    for damaged in (*flipped, *(data[:length] for length in range(0, len(data), 7))):
        told = files.message(bytes(damaged))
        if told != "none":
            assert told.startswith(f"{NAME} is damaged: ")
            with pytest.raises(CorruptObjectError) as raised:
                decoded(bytes(damaged))
            problems.add(re.sub("[0-9]+", "N", raised.value.problem))
    assert problems == {
        "it is empty, as after a power failure before it was on the disk",
        "its record batches are not where they were written",
        "the checksum of its footer differs",
        "record batch N: its checksum differs",
    }


def test_both_readers_say_the_same_of_a_row_whose_checksum_differs(
    provider_jvm: ProviderJvm,
) -> None:
    data = file_bytes(NAME, [(1, "one")], sums=[0])
    with pytest.raises(CorruptObjectError) as raised:
        decoded(data)
    told = provider_jvm.new("StateFileBytes").message(data)
    assert told.startswith(f"{NAME} is damaged: record batch 0: a row's checksum differs. Restore")
    assert raised.value.problem == "record batch 0: a row's checksum differs"
