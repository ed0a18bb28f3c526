#!/usr/bin/env bash
# Builds the wheel that other machines install, and proves that it works alone: in a new environment beside it, from a
# foreign folder, `headway schema` must answer.  Usage: infra/wheel.sh [PYTHON] [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
folder="${2:-dist}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# from a clean copy: stale build/ folders would end up in the wheel
git archive HEAD | tar -x -C "$scratch"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" "$scratch"
wheel="$(ls -t "$folder"/headway-*.whl | head -n 1)"

# the dependencies come from the environment that builds; the code only from the wheel
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$scratch/site" "$wheel"
(cd / && PYTHONPATH="$scratch/site" "$python" -P -c "
import flows, headway, beam_jobs, tfcore
for package in (flows, headway, beam_jobs, tfcore):
    assert package.__file__.startswith('$scratch/site'), package.__file__
from flows.cli.app import main
raise SystemExit(main(['schema']))" >/dev/null)
echo "$wheel"
