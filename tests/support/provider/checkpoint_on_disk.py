"""A stopped query's checkpoint on the local disk, for tests of changes without a JVM."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from spark_state.spark.adoption.adoption_plan import HDFS_CLASS
from spark_state.spark.provider.checkpoint_files import CheckpointFile, CheckpointFiles
from spark_state.spark.provider.placed_state import place_of
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY, ROCKSDB_CLASS
from spark_state.spark.provider.query_checkpoint import PARTITIONS


class FilesOnDisk(CheckpointFiles):
    """CheckpointFiles of a local folder. Jobs of the JVM end at once, and write a file for each
    store. `replaces_in_steps`: as in file systems whose rename replaces no file."""

    def __init__(self, folder: Path, *, replaces_in_steps: bool = False) -> None:
        self.folder = folder
        self.replaces_in_steps = replaces_in_steps
        self.before_write: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def settings(self) -> dict[str, str]:
        return {}

    def check_store_options(self, options: str) -> None:
        pass

    def exists(self, path: str = "") -> bool:
        return (self.folder / path).exists()

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self.folder / folder).glob("*")]

    def below(self, folder: str) -> list[CheckpointFile]:
        files = [file for file in (self.folder / folder).rglob("*") if file.is_file()]
        return sorted(
            (
                CheckpointFile(
                    str(file.relative_to(self.folder)),
                    file.stat().st_size,
                    file.stat().st_mtime_ns,
                )
                for file in files
            ),
            key=lambda file: file.path,
        )

    def folders(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return sorted(each.name for each in (self.folder / folder).iterdir() if each.is_dir())

    def read_text(self, path: str) -> str:
        return (self.folder / path).read_text()

    def create_text(self, path: str, text: str) -> bool:
        if self.exists(path):
            return False
        (self.folder / path).write_text(text)
        return True

    def write_text(self, path: str, text: str) -> None:
        self.before_write()
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.replaces_in_steps and file.exists():
            unfinished = file.with_name(f".{file.name}.{uuid4()}.tmp")
            unfinished.write_text(text)
            self.before_write()
            file.unlink()
            self.before_write()
            unfinished.rename(file)
        file.write_text(text)

    def copy(self, source: str, target: str) -> None:
        self.before_write()
        (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / source, self.folder / target)

    def move(self, source_url: str, path: str) -> None:
        self.before_write()
        target = self.folder / path
        if target.exists():
            raise OSError(f"{target} exists")
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / self.relative(source_url)).rename(target)

    def relative(self, url: str) -> str:
        return url.removeprefix(f"{self.url}/")

    def delete(self, path: str) -> None:
        self.before_write()
        file = self.folder / path
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)

    def partitionings(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"operator": store["operator"], "store": store["store"], "columns": ["key"]}
            for store in order["stores"]
        ]

    def start_conversion(self, order: dict[str, Any]) -> _EndedJob:
        self.before_write()
        return _EndedJob([self._converted(order, store) for store in order["stores"]])

    def _converted(self, order: dict[str, Any], store: dict[str, Any]) -> dict[str, Any]:
        place, unique = order.get("place"), uuid4().hex[:16]
        name = f"{order['version']}.snapshot"
        if order["targetClass"] == PROVIDER_CLASS:
            name = f"{order['version']:019}-{0:010}-{unique}-{unique}.snapshot.arrow"
        path = f"state/{store['operator']}/{store['partition']}/{name}"
        if place is None:
            url, to = f"{order['scratch']}/{path}", self.url_of(path)
        else:
            url, to = f"{place['url']}/{place['directory']}/{path}", path
        file = Path(url.removeprefix("file://"))
        file.parent.mkdir(parents=True)
        file.write_text("converted")
        return {
            "store": store,
            "rowsRead": 1,
            "files": [{"from": url, "to": to}],
        }

    def start_rescaling(self, order: dict[str, Any]) -> _EndedJob:
        self.before_write()
        made = []
        for store in order["stores"]:
            for partition in range(order["to"]):
                file = self.folder / f"state/{store['operator']}/{partition}"
                file.mkdir(exist_ok=True)
                (file / f"{order['version']}-{order['attempt']}.rescaled.arrow").write_text("dealt")
                made.append({**store, "partition": partition, "rows": 1, "unique": uuid4().hex})
        return _EndedJob(made)

    def discard_rescaled(self, order: dict[str, Any]) -> None:
        self.before_write()
        for file in self.folder.glob(f"state/*/*/*{order['attempt']}*"):
            file.unlink()


class _EndedJob:
    """A job of the JVM that has ended."""

    def __init__(self, outcomes: list[dict[str, Any]]) -> None:
        self._outcomes = outcomes

    def isDone(self) -> bool:  # noqa: N802
        return True

    def finished(self) -> int:
        return len(self._outcomes)

    def total(self) -> int:
        return len(self._outcomes)

    def result(self) -> str:
        return json.dumps(self._outcomes)

    def cancel(self) -> None:
        pass


class QueryOnDisk:
    """A query with an aggregation in two partitions, which has committed two batches on a
    provider."""

    def __init__(self, folder: Path, provider: str = HDFS_CLASS) -> None:
        self.files = FilesOnDisk(folder)
        self.folder = folder
        self._suffix = "zip" if provider == ROCKSDB_CLASS else "delta"
        for name in ("offsets", "commits", "state/0/_metadata", "state/0/0", "state/0/1"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": "query"}))
        store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
        noted = {
            "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
            "stateStoreInfo": [store],
        }
        (folder / "state/0/_metadata/metadata").write_text(f"v1\n{json.dumps(noted)}")
        for batch in range(2):
            self.plan(batch, provider)
            self.commit(batch)

    def plan(self, batch: int, provider: str) -> None:
        """Plan a batch with two partitions."""
        conf = {
            PROVIDER_KEY: provider,
            PARTITIONS: "2",
            "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
        }
        content = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
        entry = f"v1\n{json.dumps(content)}\n{batch}"
        (self.folder / "offsets" / str(batch)).write_text(entry)

    def commit(self, batch: int) -> None:
        """Commit a batch, and write its state for RocksDB, or for HDFSBacked and cowstate."""
        for partition in range(2):
            (self.folder / f"state/0/{partition}/{batch + 1}.{self._suffix}").write_text("rows")
        (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def contents(self) -> dict[str, str]:
        """All files, by path."""
        return {
            str(file.relative_to(self.folder)): file.read_text()
            for file in self.folder.rglob("*")
            if file.is_file()
        }

    def provider(self) -> str:
        """The provider of the next batch."""
        newest = max(int(file.name) for file in (self.folder / "offsets").iterdir())
        entry = (self.folder / "offsets" / str(newest)).read_text().split("\n")[1]
        provider: str = json.loads(entry)["conf"][PROVIDER_KEY]
        return provider

    def has_whole_state(self) -> bool:
        """Return True if the provider of the next batch finds the state of both partitions."""
        version = max(int(file.name) for file in (self.folder / "commits").iterdir()) + 1
        return all(self._has_state(f"state/0/{partition}", version) for partition in range(2))

    def _has_state(self, directory: str, version: int) -> bool:
        provider, there = self.provider(), self.folder / directory
        place = place_of(self.files) if provider == PROVIDER_CLASS else None
        if place is not None:
            there = Path(place.url.removeprefix("file://")) / place.directory / directory
        names = [f"{version}.delta", f"{version}.snapshot"]
        if provider == PROVIDER_CLASS:
            names.append(f"{version:019}-*.arrow")
        elif provider == ROCKSDB_CLASS:
            names = [f"{version}.zip"]
        return any(file for name in names for file in there.glob(name))
