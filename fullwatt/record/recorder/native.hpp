#pragma once

namespace fullwatt::record {

class Capture;

/// Whether this process is the fork of one that recorded.
bool forked();
/// The recorder's windows, null where nothing was opened.
Capture* native_capture();

/// For a program without the Python agent: opens its spool and windows by the clock, on a thread of its own. Returns 1,
/// as the driver wants it, whether or not it does anything.
int start_native();

}  // namespace fullwatt::record
