#pragma once

#include <cstdio>
#include <cstdlib>

/// What must hold for every input; libFuzzer keeps the input that breaks it.
#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)
