"""The release script, on a repository with the files that it edits."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from scripts import release as script
from scripts.release import FILES, ROOT, Release


def git(clone: Path, *arguments: str) -> str:
    named = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    done = subprocess.run(
        ("git", *named, *arguments), cwd=clone, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files of this repository that a release edits."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@localhost")
    for name in FILES:
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    changelog = tmp_path / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    if "## [Unreleased]\n\n### Added\n\n- " not in text:
        changelog.write_text(
            text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- A thing.\n", 1)
        )
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def test_version_and_date_are_written_committed_and_tagged(clone: Path) -> None:
    release = Release("7.8.9", clone)
    release.check()
    release.write_version()
    release.commit()
    today = date.today().isoformat()
    assert re.search(r"^version = 7\.8\.9$", (clone / "setup.cfg").read_text(), re.M)
    assert re.search(r"^version: 7\.8\.9$", (clone / "CITATION.cff").read_text(), re.M)
    assert f"## [Unreleased]\n\n## [7.8.9] - {today}\n" in (clone / "CHANGELOG.md").read_text()
    assert git(clone, "log", "-1", "--format=%s") == "Release 7.8.9"
    assert git(clone, "describe", "--exact-match") == "v7.8.9"
    assert git(clone, "status", "--porcelain") == ""
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no entries below"):
        Release("7.8.10", clone).check()


@pytest.mark.parametrize("version", ["0.1", "v0.1.0", "0.1.0rc1", "", "1.2.3.4"])
def test_what_is_no_version_is_refused(clone: Path, version: str) -> None:
    with pytest.raises(SystemExit, match="is no version: give three numbers"):
        Release(version, clone).check()


@pytest.mark.parametrize("version", ["1.9.0", "1.10.0", "0.99.0"])
def test_a_version_that_does_not_follow_the_newest_tag_is_refused(
    clone: Path, version: str
) -> None:
    for tag in ("v1.9.0", "v1.10.0", "v0.1.0", "vendored"):
        git(clone, "tag", tag)
    with pytest.raises(SystemExit, match=rf"{version} does not follow 1\.10\.0"):
        Release(version, clone).check()
    Release("1.11.0", clone).check()


def test_changes_and_other_branches_are_refused(clone: Path) -> None:
    (clone / "more").touch()
    with pytest.raises(SystemExit, match=r"not committed:\n\?\? more"):
        Release("1.0.0", clone).check()
    (clone / "more").unlink()
    git(clone, "switch", "--quiet", "--create", "other")
    with pytest.raises(SystemExit, match="the branch is other: a release is made from main"):
        Release("1.0.0", clone).check()


def test_a_file_without_a_version_is_named(clone: Path) -> None:
    (clone / "CITATION.cff").write_text("title: cowstate\n")
    with pytest.raises(SystemExit, match=r"CITATION\.cff has no line"):
        Release("1.0.0", clone).write_version()


def test_a_release_that_cannot_be_built_leaves_nothing(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Release) -> list[Path]:
        raise SystemExit("no Java")

    monkeypatch.setattr(Release, "build", fail)
    with pytest.raises(SystemExit, match="no Java"):
        script.release("7.8.9", clone)
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")
    monkeypatch.setattr(Release, "build", lambda _: [])
    script.release("7.8.9", clone)
    assert git(clone, "tag") == "v7.8.9"
