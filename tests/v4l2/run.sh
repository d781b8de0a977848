#!/usr/bin/env bash
# Runs the V4L2 tests in a virtual machine with virtual cameras. What is after the name goes to pytest.
#
# Where the machine cannot be made (no x86_64, no Debian archive, no root to install QEMU) it says so; that is an error
# unless V4L2_TESTS=optional, as in CI.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
code=0
timeout 300 "$here/machine/build.sh" || code=$?
if [ $code != 0 ]; then
    echo "tests/v4l2 skipped: the virtual machine was not made (code $code, the reason is above)"
    [ "${V4L2_TESTS:-}" = optional ]
    exit
fi
# Imports are what takes longest there, so pytest loads what these tests use and nothing else.
exec "$here/machine/run.sh" "${V4L2_SECONDS:-300}" \
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv/bin/python -m pytest -q -p pytest_timeout -p no:cacheprovider tests/v4l2 $*"
