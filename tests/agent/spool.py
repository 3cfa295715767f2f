"""A small reader of the spool (fullwatt/record/format.hpp), for tests."""

import glob
import json
import os
import struct
from collections import namedtuple

HEADER_BYTES = 4096
PHASES = ("data", "backward", "optimizer", "save", "garbage", "evaluation", "compile", "agent")
KINDS = (
    "empty", "text", "phase", "sample", "window", "kernel", "copy", "fill", "call", "wait", "overhead", "memory", "loss",
    "fetch", "mark", "trouble",
)  # fmt: skip
HEADER_FIELDS = (
    "magic version role pid rank opened_ns opened_wall_ns file_bytes trend_capacity step_capacity record_capacity trend_count "
    "trend_steps_per_bucket step_count record_next records_dropped last_step_ns samples_total unused hook_cost_ns state thread windows"
)

Header = namedtuple("Header", HEADER_FIELDS)
Step = namedtuple("Step", "number end_ns samples optimizer flags phases")
Record = namedtuple("Record", "kind flags thread id start_ns duration_ns a b c d")
_HEADER = struct.Struct("<8sIIIi15QIII")
_STEP = struct.Struct("<QQQHHI8Q")
_RECORD = struct.Struct("<BBHIQQQQII")
_TREND_BYTES = 128


class Spool:
    """One process's spool, read whole."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = file.read()
        self.header = Header(*_HEADER.unpack_from(self._data, 0))
        assert self.header.magic == b"FWSPOOL\n", "no spool: %r" % (self.header.magic,)
        self.texts = {0: ""}
        self.records = []
        self._read_records()

    def steps(self):
        """The newest steps, in order."""
        start = HEADER_BYTES + self.header.trend_capacity * _TREND_BYTES
        count, capacity = self.header.step_count, self.header.step_capacity
        found = []
        for number in range(max(0, count - capacity), count):
            values = _STEP.unpack_from(self._data, start + number % capacity * _STEP.size)
            found.append(Step(*values[:5], dict(zip(PHASES, values[6:]))))
        return found

    def of_kind(self, kind):
        """The records of one kind."""
        return [record for record in self.records if record.kind == kind]

    def _read_records(self):
        header = self.header
        start = HEADER_BYTES + header.trend_capacity * _TREND_BYTES + header.step_capacity * _STEP.size
        slot, last = 0, min(header.record_next, header.record_capacity)
        while slot < last:
            values = _RECORD.unpack_from(self._data, start + slot * _RECORD.size)
            record = Record(KINDS[values[0]], *values[1:])
            slot += 1
            if record.kind == "text":
                offset = start + slot * _RECORD.size
                self.texts[record.id] = self._data[offset : offset + record.a].decode("utf-8", "replace")
                slot += -(-record.a // _RECORD.size)
            elif record.kind != "empty":
                self.records.append(record)


def spools(folder):
    """All spools of a run, those of trainers first."""
    found = [Spool(path) for path in sorted(glob.glob(os.path.join(folder, "spool-*.fw")))]
    return sorted(found, key=lambda spool: spool.header.role)


def facts(folder):
    """All facts of a run."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "facts-*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            found += [json.loads(line) for line in file]
    return found
