"""Holds the reports of the sample runs against docs/run.schema.json: validate_run_schema.py SAMPLE_REPORTS SCHEMA"""

import glob
import json
import subprocess
import sys
import tempfile

import jsonschema

program, schema_path = sys.argv[1:]
with open(schema_path, encoding="utf-8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([program, folder], check=True)
    paths = glob.glob(folder + "/*.json")
    reports = [json.load(open(path, encoding="utf-8")) for path in paths]
assert len(reports) >= 3, paths
for path, report in zip(paths, reports):
    problems = [f"{path}: {list(error.path)}: {error.message}" for error in validator.iter_errors(report)]
    assert not problems, "\n".join(problems)
    for field in report:
        assert not validator.is_valid({name: value for name, value in report.items() if name != field}), field
print(len(reports), "reports follow the schema")
