#!/bin/sh
# The lock files: exact versions with hashes, for every Python from 3.11 and every platform.
# bench.txt holds everything; the others are parts of it, with the same versions.
set -eu
cd "$(dirname "$0")/.."
compile() {
  uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
    --quiet "$@"
}
compile pyproject.toml --extra dev --extra jvm --extra bench --output-file lock/bench.txt
compile pyproject.toml --extra dev --constraint lock/bench.txt --output-file lock/dev.txt
compile pyproject.toml --extra jvm --constraint lock/bench.txt --output-file lock/jvm.txt
compile pyproject.toml --constraint lock/bench.txt --output-file lock/run.txt
compile lock/build.in --constraint lock/bench.txt --output-file lock/build.txt
