"""Credentials of a store come from the environment and appear in no file, object or log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

import psutil
import pyspark
import pytest
import s3fs

from tests.support.applications.provider_drivers import command, epochs_in, family, feed, kill
from tests.support.provider.provider_jobs import Options
from tests.support.provider.provider_stores import RETRY_SECONDS, s3_store
from tests.support.stores.moto_s3 import S3Server, moto_s3

pytestmark = [pytest.mark.spark, pytest.mark.fault]

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = ("--master", "local-cluster[1,1,1024]")
# Log everything that drivers and executors can log, as text.
TALKATIVE = {
    "spark.logConf": "true",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    RETRY_SECONDS: "2",
    "spark.task.maxFailures": "1",
}
LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
# It decides for a driver in Python.
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = info
"""
# Names whose values Spark's own pattern does not hide.
REDACTION = "(?i)secret|password|token|access[._]?key|connection_?string"


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


def spark_home(folder: Path) -> Path:
    """Link the installed Spark into a folder, so that clusters keep executors' logs in this
    folder."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        # Clusters of other tests may have left executors' directories in this folder.
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j2.properties").write_text(LOGGING)
    return folder


class Application:
    """The provider's application with its state on S3. The application writes only to `folder`, S3
    and sockets."""

    def __init__(self, folder: Path, s3: S3Server) -> None:
        self.folder = folder
        self.s3 = s3
        self.store = s3_store(s3)
        self.bucket = self.store.url.split("/")[2]
        self.environment = {**os.environ, "SPARK_HOME": str(spark_home(folder / "spark"))}
        (folder / "events").mkdir()
        feed(folder, 30)

    def start(self, settings: Options, **environment: str) -> subprocess.Popen[bytes]:
        """Start a driver with an executor in a separate process."""
        events = {"spark.eventLog.dir": (self.folder / "events").as_uri()}
        settings = {**TALKATIVE, **events, **self.store.settings, **settings}
        configured = [f"--conf={key}={value}" for key, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command(self.folder, *CLUSTER, *configured),
                cwd=ROOT,
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
            )

    def objects(self) -> dict[str, bytes]:
        """Read all objects of the bucket, by name."""
        client = s3fs.S3FileSystem(**self.s3.storage_options, use_listings_cache=False)
        return {name: client.cat_file(name) for name in client.find(self.bucket)}

    def files(self) -> dict[str, bytes]:
        """Read all files written below the folder, by path."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


def places_of(text: str, contents: Mapping[str, bytes]) -> list[str]:
    return [name for name, data in contents.items() if text.encode() in data]


def kill_after(epochs: int, application: Application, driver: subprocess.Popen[bytes]) -> None:
    """Kill the application after some epochs, so that files deleted at a normal end stay."""
    while driver.poll() is None and epochs_in(application.folder) < epochs:
        time.sleep(0.05)
    kill(family(psutil.Process(driver.pid)))
    assert driver.wait() == -signal.SIGKILL


def fail(driver: subprocess.Popen[bytes]) -> None:
    assert driver.wait(timeout=300) == 1


@dataclass(frozen=True)
class Credentials:
    """Random credentials that occur nowhere else, so a search finds every copy."""

    key: str = field(default_factory=lambda: f"COWSTATEKEY{uuid4().hex}")
    secret: str = field(default_factory=lambda: f"cowstate-secret-{uuid4().hex}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables from which clients of S3 read the credentials."""
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}


def assert_written(application: Application, files: Mapping[str, bytes]) -> None:
    """Assert that the bucket's name is in the checkpoint and in the logs of drivers, executors and
    gateways. So the search would also find credentials there."""
    places = places_of(application.bucket, files)
    for kind in ("checkpoint/state/*", "log", "spark/work/*/0/stderr", "events/*/events_*"):
        assert any(fnmatch(place, kind) for place in places), (kind, places)
    assert any(fnmatch(name, "scratch/*/shuffle_*") for name in files)


def test_credentials_are_in_no_file_no_object_and_no_log(tmp_path: Path, s3: S3Server) -> None:
    """In two of the runs, only executors have credentials, from Spark's configuration, and Spark
    shows and logs its configuration."""
    of_driver, of_executors, application = Credentials(), Credentials(), Application(tmp_path, s3)
    configured = {f"spark.executorEnv.{k}": v for k, v in of_executors.environment.items()}
    settings = {**configured, "spark.redaction.regex": REDACTION}
    environment = of_driver.environment
    kill_after(3, application, application.start(settings))
    kill_after(5, application, application.start({}, **environment))
    with s3.refusing():
        fail(application.start(settings))
    with s3.away():
        fail(application.start({}, **environment))
    files, objects = application.files(), application.objects()
    assert_written(application, files)
    log = files["log"].decode()
    assert "cannot use the store" in log
    assert "The AWS Access Key Id you provided does not exist" in log
    assert "is unavailable: " in log
    assert places_of("cowstate gateway", files)
    for name in configured:
        assert any(place.startswith("events/") for place in places_of(name, files))
        assert "log" in places_of(name, files)
    for credentials in (of_driver, of_executors):
        for text in (credentials.key, credentials.secret):
            assert places_of(text, {**files, **objects}) == []
    assert len(objects) > 5
    assert places_of(str(tmp_path), objects)
    assert f'"{REDACTION}"' in (ROOT / "docs/how-to/provider-state-on-s3.md").read_text()
