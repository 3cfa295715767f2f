"""Reads from a spool (fullwatt/record/format.hpp) when its windows were open."""

import struct

HEADER = struct.Struct("<8sIIIi7Q")  # magic, version, role, pid, rank, opened, opened by the wall clock, file, trend, step and record capacity, trend count
RECORD = struct.Struct("<BBHIQQQQII")
HEADER_BYTES, TREND_BYTES, STEP_BYTES = 4096, 128, 96
VERSION, TRAINER = 1, 0
TEXT, WINDOW = 1, 4
MODES = {1: "times", 2: "causes"}


def records(data, start):
    """All records but texts, whose bytes fill slots of their own."""
    position = start
    while position + RECORD.size <= len(data):
        record = RECORD.unpack_from(data, position)
        position += RECORD.size
        if record[0] == TEXT:
            position += -(-record[6] // RECORD.size) * RECORD.size
        elif record[0]:
            yield record


def windows(folder):
    """(mode, start, end) of the trainer's windows, in ns of time.perf_counter_ns. They start when the GPU had done all that was before them."""
    found = []
    for path in sorted(folder.glob("spool-*.fw")):
        data = path.read_bytes()
        magic, version, role, _, _, _, _, _, trends, steps, _, _ = HEADER.unpack_from(data)
        if magic != b"FWSPOOL\n" or version != VERSION or role != TRAINER:
            continue
        for record in records(data, HEADER_BYTES + trends * TREND_BYTES + steps * STEP_BYTES):
            if record[0] == WINDOW:
                found.append((MODES.get(record[1], "other"), record[4] - 1000 * record[9], record[4] + record[5]))
    return sorted(found, key=lambda window: window[1])
