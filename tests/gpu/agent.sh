#!/bin/sh
# agent.sh BUILD [JOBS]: the agent's tests of fixes on a GPU, JOBS (6) at a time, with the programs in BUILD, say build/release.
# It is for a machine with a GPU and torch that lacks what a build needs; ./dev test runs the same tests one after another.
[ -x "$1/bin/fullwatt" ] || { echo "usage: $0 BUILD [JOBS]; there is no program $1/bin/fullwatt" >&2; exit 2; }
build=$(cd "$1" && pwd)
export FULLWATT_PROGRAM="$build/bin/fullwatt" FULLWATT_RECORDER="$build/lib/libfullwatt_recorder.so"
export FULLWATT_TEST_PYTHON="${FULLWATT_TEST_PYTHON:-python3}"
export PYTHONPATH="$(cd "$(dirname "$0")/../agent" && pwd)${PYTHONPATH:+:$PYTHONPATH}"
there=$("$FULLWATT_TEST_PYTHON" -c 'import torch; print(torch.cuda.is_available())') || { echo "$FULLWATT_TEST_PYTHON cannot tell whether there is a GPU" >&2; exit 2; }
[ "$there" = True ] || { echo "skipped: no GPU"; exit 77; }

tests_that() { # measure, or only compute
  "$FULLWATT_TEST_PYTHON" - "$1" << 'PYTHON'
import sys
import unittest

from gpu_fixes_test import TurnsOnGpuTest


def each(suite):
    return [test for part in suite for test in each(part)] if isinstance(suite, unittest.TestSuite) else [suite]


for test in each(unittest.defaultTestLoader.loadTestsFromName("gpu_fixes_test")):
    if isinstance(test, TurnsOnGpuTest) == (sys.argv[1] == "measure"):
        print(test.id())
PYTHON
}

run_each() { # AT-ONCE: the tests named in the input
  xargs -P "$1" -I NAME sh -c '
    if told=$("$FULLWATT_TEST_PYTHON" -m unittest "$0" 2>&1); then echo "passed   $0"; else printf "FAILED   %s\n%s\n" "$0" "$told"; exit 1; fi' NAME
}

computing=$(tests_that compute) && measuring=$(tests_that measure) || exit 2
failed=0
echo "$computing" | run_each "${2:-6}" || failed=1
echo "$measuring" | run_each 1 || failed=1
exit $failed
