#!/bin/sh
# Compile the pinned, hashed requirement files from pyproject.toml. No index lines: every machine uses its own.
set -eu
cd "$(dirname "$0")/.."
compile() {
    out="requirements/$1.txt"; shift
    env -u PIP_FIND_LINKS -u UV_FIND_LINKS "${UV:-uv}" pip compile pyproject.toml "$@" --quiet --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate --python-version 3.11 --output-file "$out" >/dev/null
}
compile operator --extra operator
compile serving --extra serving
compile models --extra models
compile dev --extra operator --extra serving --extra models --extra dev
for name in bootstrap models-demo; do
    env -u PIP_FIND_LINKS -u UV_FIND_LINKS "${UV:-uv}" pip compile "requirements/$name.in" --no-deps --quiet --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file "requirements/$name.txt" >/dev/null
done
