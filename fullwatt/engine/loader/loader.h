#pragma once

#include <stdint.h>

/*
 * The loader's C interface: a shared library without torch, called by python/fullwatt/loader.py through ctypes. Threads
 * fetch batches ahead into memory that the caller gives; a filled one is the caller's, in exchange for another.
 *
 * What fails returns NULL or FULLWATT_LOADER_FAILED, and fullwatt_loader_error() says why. Data may be shared by
 * several threads and used on after a fork; batches belong to the process that began them, and one thread at a time.
 */
#if defined(__cplusplus)
extern "C" {
#endif

#define FULLWATT_LOADER_VERSION 1

#pragma GCC visibility push(default)

typedef struct fullwatt_loader_data fullwatt_loader_data;
typedef struct fullwatt_loader_batches fullwatt_loader_batches;

/* What one sample has; of an array in memory, the shape begins with the number of samples. Dtypes are NumPy's names. */
typedef struct fullwatt_loader_field {
  const char* name;
  const char* dtype;
  const int64_t* shape;
  uint32_t dimensions;
  const void* memory; /* of an array */
} fullwatt_loader_field;

/* LoaderOptions of engine/data/loader.hpp, for one epoch. */
typedef struct fullwatt_loader_options {
  int64_t batch;
  int32_t threads;
  int32_t ahead; /* batches that are in memory at once */
  int32_t shuffled;
  int32_t drop_last;
  uint64_t seed;
  uint64_t epoch;
  uint64_t first_batch;
  int32_t part;
  int32_t parts;
} fullwatt_loader_options;

enum {
  FULLWATT_LOADER_FAILED = -1,
  FULLWATT_LOADER_OVER = 0, /* the epoch has no more batches */
  FULLWATT_LOADER_BATCH = 1,
  FULLWATT_LOADER_NOT_YET = 2 /* ask again: the caller may look after signals in between */
};

int fullwatt_loader_version(void);
/* What failed last in this thread, with what to do; the kind is that of base::Error. */
const char* fullwatt_loader_error(int* kind);

fullwatt_loader_data* fullwatt_loader_open_npy(const char* folder, const char* const* names,
                                               const char* const* patterns, uint32_t fields);
fullwatt_loader_data* fullwatt_loader_open_images(const char* folder, int64_t height, int64_t width);
/* The arrays' memory stays the caller's, unchanged as long as the data are open or batches of them are taken. */
fullwatt_loader_data* fullwatt_loader_open_arrays(const fullwatt_loader_field* arrays, uint32_t count);
int64_t fullwatt_loader_samples(const fullwatt_loader_data* data);
/* Returns how many there are; writes at most so many. They live as long as the data. */
uint32_t fullwatt_loader_fields(const fullwatt_loader_data* data, fullwatt_loader_field* fields, uint32_t most);
void fullwatt_loader_close(fullwatt_loader_data* data);

/* Begins to fetch into `memory`: for each of the batches ahead one block for each field, of batch times the sample's
   size. The data may be closed before. */
fullwatt_loader_batches* fullwatt_loader_begin(const fullwatt_loader_data* data, const fullwatt_loader_options* options,
                                               void* const* memory);
/* Waits so long at most. With a batch, `filled` are its blocks, and `fresh` are the loader's from now on. */
int fullwatt_loader_next(fullwatt_loader_batches* batches, uint32_t wait_ms, void* const* fresh, void** filled,
                         int64_t* samples);
/* Returns when no thread touches the blocks any more. In a forked child it does nothing: the parent has the threads. */
void fullwatt_loader_end(fullwatt_loader_batches* batches);

#pragma GCC visibility pop

#if defined(__cplusplus)
}
#endif
