"""Holds the reports of some patients against docs/doctor.schema.json: validate_schema.py PROGRAM SCHEMA PATIENT..."""

import json
import subprocess
import sys

import jsonschema

program, schema_path, *patients = sys.argv[1:]
with open(schema_path, encoding="utf-8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for patient in patients:
    result = subprocess.run([program, "doctor", "--json", "--from", patient], capture_output=True, text=True)
    assert result.returncode in (0, 1), (patient, result.returncode, result.stderr)
    problems = [f"{patient}: {list(error.path)}: {error.message}" for error in validator.iter_errors(json.loads(result.stdout))]
    assert not problems, "\n".join(problems)
broken = json.loads(result.stdout)
del broken["layers"]
assert not validator.is_valid(broken), "the schema accepts a report without layers"
print(len(patients), "reports follow the schema")
