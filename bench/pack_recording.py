"""Packs a run folder into a recording that the test suite explains again without a GPU: tests/recordings/NAME.tgz.

Usage: pack_recording.py RUN_FOLDER NAME [--hide FOLDER…]. Left out is what tells about the machine rather than the training: its files, packages, logs,
processes and environment (needs PyYAML). The folders to hide are written over with names of the same length, since the spool is binary.
"""

import argparse
import gzip
import io
import pathlib
import tarfile

import yaml

RECORDINGS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "recordings"
LEFT_OUT = {"report.json", "report.html", "out.txt", "workload"}
OF_THE_SYSTEM = {"kernel": "6.1.0", "kernel_log": [], "service_logs": {}, "interfaces": [], "processes": [], "packages": {}}
STAND_IN = "/home/user"


def machine(text):
    """Only what the driver and CUDA answered, and the size of the machine."""
    raw = yaml.safe_load(text)
    raw.update(environment={}, files={})
    raw["system"].update(OF_THE_SYSTEM)
    return yaml.safe_dump(raw, sort_keys=False)


def hidden(data, folders):
    for folder in folders:
        stand_in = (STAND_IN + "_" * len(folder))[:len(folder)]
        data = data.replace(folder.encode(), stand_in.encode())
    return data


def pack(folder, target, folders):
    """The same bytes for the same run: no times, no owners."""
    with open(target, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, compresslevel=9) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.name in LEFT_OUT:
                continue
            data = path.read_bytes()
            if path.name == "machine.yaml":
                data = machine(data.decode()).encode()
            data = hidden(data, folders)
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name", help="the workload's name")
    parser.add_argument("--hide", nargs="*", default=[], help="folders of the machine that are not to be told")
    options = parser.parse_args()
    pack(options.folder, RECORDINGS / f"{options.name}.tgz", options.hide)


if __name__ == "__main__":
    main()
