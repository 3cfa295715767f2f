#!/bin/sh
# run.sh truth | run.sh cpu FULLWATT RESULTS: with the interpreter in FULLWATT_TEST_PYTHON, which has torch.
python="${FULLWATT_TEST_PYTHON:-}"
here="$(cd "$(dirname "$0")" && pwd)"
[ -n "$python" ] || { echo "FULLWATT_TEST_PYTHON is not set" >&2; exit 77; }
[ "$1" = truth ] && exec "$python" "$here/workloads_test.py"
"$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' || { echo "$python has no torch" >&2; exit 77; }
CUDA_VISIBLE_DEVICES= exec "$python" "$here/../../bench/workloads.py" "$2" --seconds 4 --budget 480 --again --verdicts --output "$3" --commit test
