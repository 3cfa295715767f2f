#!/bin/sh
# run.sh FULLWATT: with the interpreter in FULLWATT_TEST_PYTHON.
[ -n "${FULLWATT_TEST_PYTHON:-}" ] || { echo "FULLWATT_TEST_PYTHON is not set" >&2; exit 77; }
exec "$FULLWATT_TEST_PYTHON" "$(dirname "$0")/recordings_test.py" "$1"
