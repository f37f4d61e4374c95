"""Makes a release: the steps of RELEASING.md that a program can do.

    python -m scripts.release 0.1.0 --dry-run    # in a clone that is deleted afterwards
    python -m scripts.release 0.1.0

1. Checks: the version follows the newest tag, the tree is clean and on `main`, and CHANGELOG.md has
   entries for the release.
2. Writes the version into setup.cfg and CITATION.cff, and the version and the date into
   CHANGELOG.md.
3. Builds the source archive and the wheel into dist/, and checks their metadata and their contents.
4. Commits "Release X.Y.Z", and tags the commit vX.Y.Z.
5. Prints the command that pushes commit and tag. The workflow `release` then publishes.

A step that fails ends the program with exit code 1 and a line that says why. The files of step 2
are then as before.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
UNRELEASED = "## [Unreleased]"
FILES = ("setup.cfg", "CITATION.cff", "CHANGELOG.md")
"""The files that a release edits."""


class Release:
    """A release of a version from a clone."""

    def __init__(self, version: str, clone: Path) -> None:
        self._version = version
        self._clone = clone

    def check(self) -> None:
        """Exit unless the version can be released."""
        if not VERSION.fullmatch(self._version):
            sys.exit(f"{self._version!r} is no version: give three numbers, such as 0.1.0")
        released = [
            _numbers(tag[1:])
            for tag in self._git("tag", "--list", "v*").split()
            if VERSION.fullmatch(tag[1:])
        ]
        if released and _numbers(self._version) <= max(released):
            newest = ".".join(map(str, max(released)))
            sys.exit(f"version {self._version} does not follow {newest}, which is released")
        if changed := self._git("status", "--porcelain"):
            sys.exit(f"the tree has changes that are not committed:\n{changed}")
        branch = self._git("branch", "--show-current")
        if branch != "main":
            sys.exit(f"the branch is {branch}: a release is made from main")
        if not self._entries():
            sys.exit(f"CHANGELOG.md has no entries below {UNRELEASED}")

    def write_version(self) -> None:
        self._replace("setup.cfg", r"^version = .*$", f"version = {self._version}")
        self._replace("CITATION.cff", r"^version: .*$", f"version: {self._version}")
        dated = f"{UNRELEASED}\n\n## [{self._version}] - {date.today().isoformat()}"
        self._replace("CHANGELOG.md", f"^{re.escape(UNRELEASED)}$", dated)

    def undo(self) -> None:
        """Take back the changes of write_version."""
        self._git("checkout", "--", *FILES)

    def commit(self) -> None:
        self._git("commit", "--all", "--message", f"Release {self._version}")
        self._git(
            "tag", "--annotate", f"v{self._version}", "--message", f"cowstate {self._version}"
        )

    def build(self) -> list[Path]:
        """Build the archives, and return their paths. Exits if an archive lacks something."""
        dist = self._clone / "dist"
        for former in dist.glob("*"):
            former.unlink()
        self._run(sys.executable, "-m", "build", "--outdir", str(dist))
        archives = sorted(dist.iterdir())
        self._run(sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))
        (wheel,) = dist.glob(f"cowstate-{self._version}-py3-none-any.whl")
        with zipfile.ZipFile(wheel) as archive:
            if "spark_state/jars/cowstate-provider.jar" not in archive.namelist():
                sys.exit(f"{wheel.name} lacks the jar of the provider")
        return archives

    def _entries(self) -> str:
        """The entries of the changelog for the next release."""
        text = (self._clone / "CHANGELOG.md").read_text(encoding="utf-8")
        _, _, rest = text.partition(UNRELEASED)
        return "".join(re.findall(r"^- .*", rest.partition("\n## [")[0], re.M))

    def _replace(self, name: str, pattern: str, text: str) -> None:
        file = self._clone / name
        former = file.read_text(encoding="utf-8")
        changed, places = re.subn(pattern, text, former, count=1, flags=re.M)
        if not places:
            sys.exit(f"{name} has no line {pattern}")
        file.write_text(changed, encoding="utf-8")

    def _git(self, *arguments: str) -> str:
        return self._run("git", *arguments).strip()

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self._clone, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def release(version: str, clone: Path) -> None:
    """Do all steps but the push in a clone."""
    making = Release(version, clone)
    making.check()
    try:
        making.write_version()
        for archive in making.build():
            print(f"built {archive.name}: {archive.stat().st_size:,} bytes", flush=True)
    except BaseException:
        making.undo()
        raise
    making.commit()
    print(f"committed and tagged v{version}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a release.")
    parser.add_argument("version", help="for example 0.1.0")
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    given = parser.parse_args()
    if given.dry_run:
        Release(given.version, ROOT).check()
        with tempfile.TemporaryDirectory(prefix="cowstate-release-") as folder:
            clone = Path(folder) / "clone"
            subprocess.run(("git", "clone", "--quiet", str(ROOT), str(clone)), check=True)
            release(given.version, clone)
        print("a dry run: nothing was changed")
        return
    release(given.version, ROOT)
    print(f"publish it: git push origin main v{given.version}")


if __name__ == "__main__":
    main()
