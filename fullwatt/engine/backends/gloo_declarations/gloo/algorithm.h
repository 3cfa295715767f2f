#pragma once

// See context.h; nothing of this one is needed.
