#!/usr/bin/env bash
# Makes the virtual environment $1 with the interpreter $2; on Debian as root it installs the venv
# module first if that is missing.
set -euo pipefail
venv=$1
python=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "cowstate needs Python 3.11 or newer; '$python' is not. Run: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
fi
if [ -x "$venv/bin/pip" ]; then exit 0; fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
    else
        echo "Python's venv module is missing. Debian, Ubuntu: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
"$python" -m venv "$venv"
