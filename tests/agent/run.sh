#!/bin/sh
# run.sh NAME [FOLDER]: runs the unittest module NAME of this folder, or of FOLDER, with the interpreter in FULLWATT_TEST_PYTHON.
[ -n "$FULLWATT_TEST_PYTHON" ] || { echo "FULLWATT_TEST_PYTHON is not set" >&2; exit 77; }
"$FULLWATT_TEST_PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' ||
  { echo "$FULLWATT_TEST_PYTHON has no torch" >&2; exit 77; }
cd "${2:-$(dirname "$0")}" && exec "$FULLWATT_TEST_PYTHON" -m unittest "$1"
