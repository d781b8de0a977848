#!/usr/bin/env bash
# Fetches into .whl/ the wheels that tests/gpu/run.sh needs on a GPU machine without a network (Python 3.12, x86_64).
#
# The versions are those of .venv; what is not there (Flask and its needs, without the extra bench) comes in the newest one.
# What such a machine has already (CuPy, NumPy, OpenCV, pytest, hypothesis, psutil, …) is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
names=(fastapi starlette uvicorn httptools pydantic pydantic-core pydantic-settings annotated-types typing-inspection
    typing-extensions opentelemetry-api websockets simplejpeg av python-dotenv nvidia-nvjpeg
    hatchling tomlkit trove-classifiers import-linter grimp
    jsonschema jsonschema-specifications referencing rpds-py attrs
    flask werkzeug itsdangerous blinker jinja2 markupsafe click
    aiortc aioice pyee pylibsrtp google-crc32c cryptography cffi pycparser ifaddr dnspython pyopenssl)
platforms=()
for platform in manylinux1 manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_27 manylinux_2_28 manylinux_2_31 \
    manylinux_2_34 manylinux_2_35; do
    platforms+=(--platform "${platform}_x86_64")
done
rm -rf .whl
for name in "${names[@]}"; do
    version=$(.venv/bin/python -c "from importlib.metadata import version; print('==' + version('$name'))" 2>/dev/null || true)
    .venv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        "${platforms[@]}" --dest .whl "$name$version"
done
du -sh .whl
