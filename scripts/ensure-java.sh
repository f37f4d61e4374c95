#!/usr/bin/env bash
# Makes sure that Spark finds Java 17 or newer: installs it with apt-get when run as root on Debian or
# Ubuntu, says how to install it otherwise.
set -euo pipefail

java_command() {
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

java_major() {
    "$(java_command)" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1
}

has_java() {
    local major
    major=$(java_major || true)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

if has_java; then exit 0; fi

if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    echo "No Java 17 or newer found; installing one with apt-get."
    apt-get update -qq
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" && has_java; then exit 0; fi
    done
fi

cat >&2 <<'MESSAGE'
Spark needs Java 17 or newer, and none was found (looked at JAVA_HOME and PATH).
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (or openjdk-21-jre-headless)
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@21, then set JAVA_HOME to what `brew --prefix openjdk@21` prints
MESSAGE
exit 1
