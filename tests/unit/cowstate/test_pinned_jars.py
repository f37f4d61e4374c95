"""A jar from Maven Central is used only if its checksum is the pinned checksum."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cowstate import pinned_jars

ROOT = Path(__file__).resolve().parents[3]
DATA = b"a jar"


@pytest.fixture
def published(tmp_path: Path) -> str:
    (tmp_path / "published.jar").write_bytes(DATA)
    return (tmp_path / "published.jar").as_uri()


def test_a_jar_that_is_the_pinned_one_is_kept(published: str, tmp_path: Path) -> None:
    jar = tmp_path / "jars" / "a.jar"
    pinned_jars.download(published, jar)
    pinned_jars.check(jar, hashlib.sha256(DATA).hexdigest())
    assert [path.name for path in jar.parent.iterdir()] == ["a.jar"]


def test_a_jar_that_is_another_one_is_refused_and_deleted(published: str, tmp_path: Path) -> None:
    jar = tmp_path / "jars" / "a.jar"
    pinned_jars.download(published, jar)
    with pytest.raises(SystemExit, match=r"a\.jar has SHA-256 .* instead of 0000: it was not used"):
        pinned_jars.check(jar, "0000")
    assert not jar.exists()


def test_a_repository_that_does_not_answer_is_named_with_the_way_out(tmp_path: Path) -> None:
    url = (tmp_path / "missing.jar").as_uri()
    with pytest.raises(SystemExit, match="MAVEN_REPOSITORY may name a mirror") as caught:
        pinned_jars.download(url, tmp_path / "a.jar")
    assert url in str(caught.value)


def test_every_pinned_jar_has_a_checksum() -> None:
    lines = (ROOT / "scripts" / "scalafmt.sha256").read_text().splitlines()
    pinned = [line.split() for line in lines if not line.startswith("#")]
    version = (ROOT / ".scalafmt.conf").read_text().partition("version = ")[2].split()[0]
    assert f"scalafmt-core_2.13-{version}.jar" in {Path(path).name for _, path in pinned}
    assert {len(checksum) for checksum, _ in pinned} == {64}
