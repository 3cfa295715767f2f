#pragma once

#include <stdint.h>

/*
 * The recorder's C interface: a small shared library inside the training process, called by the Python agent through
 * ctypes, or loaded by the CUDA driver (CUDA_INJECTION64_PATH) into a program without Python. It never ends, blocks or
 * changes the training: what goes wrong is written to the spool as trouble, and the recorder turns itself off.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Phases, kinds and flags are those of record/format.hpp.
 */
#if defined(__cplusplus)
extern "C" {
#endif

#define FULLWATT_RECORDER_VERSION 2

#pragma GCC visibility push(default)

/* What fullwatt_step asks the agent to do now. */
enum {
  FULLWATT_OPEN_TIMES = 1,  /* call fullwatt_window_open(1) */
  FULLWATT_OPEN_CAUSES = 2, /* call fullwatt_window_open(2) and sample lines */
  FULLWATT_CLOSE = 4,       /* stop sampling, then call fullwatt_window_close() */
  FULLWATT_MEASURE = 8,     /* read the allocator's figures, keep the loss of the next backward */
  FULLWATT_STOP = 16,       /* the number of steps asked for is reached */
  FULLWATT_COUNT = 32,      /* count the operations of the next step, once */
  FULLWATT_CEILING = 64,    /* from now on the loader gives the same few batches again and again */
  FULLWATT_ENOUGH = 128     /* long steps have taken the time asked for: stop, unless others would wait */
};

/* Opens the spool of this process. Returns 0, or -1 and fullwatt_trouble() says why. Reads FULLWATT_STEPS,
 * FULLWATT_ENOUGH_SECONDS and FULLWATT_CEILING. */
int fullwatt_open(const char* run_folder, int role, int rank);
int fullwatt_version(void);
const char* fullwatt_trouble(void);

/* A phase that began at start_ns ends now. site: a text id, 0 when not asked for (only inside windows). */
void fullwatt_phase(int phase, uint64_t start_ns, uint32_t site);
/* Optimizer.step, begun at start_ns, ends now. Returns what to do, a sum of the values above. */
uint32_t fullwatt_step(uint32_t optimizer, uint64_t start_ns, uint32_t site);
/* The whole of a steady step in one call: when its optimizer began and ended, and how long the other parts took. With
   FULLWATT_REHEARSAL as optimizer no step ends, and the times are counted as the agent's own. */
#define FULLWATT_REHEARSAL 0xFFFFFFFFU
uint32_t fullwatt_steady_step(uint32_t optimizer, uint64_t start_ns, uint64_t end_ns, uint64_t samples,
                              uint64_t data_ns, uint64_t backward_ns);

/* What the hooks of a training share, in the agent's memory; python/fullwatt/recorder.py has the same fields. */
#define FULLWATT_OPTIMIZERS 8
#define FULLWATT_DETAIL_PHASES 1024U /* of detail: a window is open, and its phases are recorded one by one */
typedef struct fullwatt_training {
  uint32_t detail;       /* why hooks must look closer; 0 is the steady state */
  uint32_t in_backward;  /* a backward pass is in progress */
  uint32_t inner_steps;  /* steps of the optimiser inside its own step */
  uint32_t is_rehearsal; /* no step ends: what the hooks cost is being measured */
  uint64_t thread;       /* the one that trains (pthread_self), 0 before the first step */
  uint64_t stepping;     /* Python's id() of the optimiser whose step is in progress, or 0 */
  uint64_t step_start;
  uint64_t steps;
  uint64_t data_ns; /* of the steady step in progress, as the next two; the recorder is told at its end */
  uint64_t backward_ns;
  uint64_t taken;                           /* samples */
  uint64_t batch;                           /* samples of one forward */
  int64_t credits;                          /* batches that were fetched and not yet seen in a backward */
  uint64_t optimizers[FULLWATT_OPTIMIZERS]; /* id() of those with the numbers 0, 1, …; 0 where there is none */
} fullwatt_training;

/* A hook of the steady state as a Python function, see hooks.hpp: a new reference, or NULL where the interpreter lacks
   what it needs. To be called with its lock held. */
void* fullwatt_python_hook(int kind, fullwatt_training* training, void* original, void* python_hook, void* then);
/* Samples that went into the model since the last call. */
void fullwatt_samples(uint64_t samples);
/* Marks the current step, see StepFlag. */
void fullwatt_flag(uint32_t step_flag);

/* The id of a text, the same for the same bytes; 0 when there is no room left. */
uint32_t fullwatt_text(const char* bytes, uint32_t length);
/* Where a thread is, sampled every so many nanoseconds, hardly ever with the interpreter's lock. Called by the thread
   that is to be sampled, with that lock held; returns 0 when it samples, 1 where it cannot. */
int fullwatt_sampler_start(uint64_t period_ns);
/* Ends that, without the interpreter's lock; returns how many different stacks were seen. */
uint32_t fullwatt_sampler_stop(void);
/* Addresses of code objects that were seen often and are not known: at most so many are written, how many is returned.
   Code that has these addresses can be told. */
uint32_t fullwatt_sampler_unknown(uint64_t* addresses, uint32_t most);
void fullwatt_sampler_tell(void* code);
/* One of them, with the interpreter's lock held: a new tuple (code, place of the last instruction, code, …), innermost
   first. */
void* fullwatt_sampler_stack(uint32_t number);
/* Writes the samples, given the id of a text for each stack, and forgets them. */
void fullwatt_sampler_write(const uint32_t* texts);
/* Where a thread is now: a sample that Python made. */
void fullwatt_sample(uint32_t stack);
/* The stack of another Python thread, called with the interpreter's lock held: a new tuple (code, index of the last
   instruction, code, …), innermost first, at most 120 frames. Only where fullwatt_python_stack_known() is 1
   (Python 3.11 and newer). */
void* fullwatt_python_stack(unsigned long thread);
int fullwatt_python_stack_known(void);
/* The agent's own cost of one steady step, as it measured it. */
void fullwatt_cost(uint64_t ns_per_step);
/* Any other record. */
void fullwatt_record(int kind, int flags, uint32_t id, uint64_t start_ns, uint64_t duration_ns, uint64_t a, uint64_t b,
                     uint32_t c, uint32_t d);

/* Windows. The mode is 1 (times) or 2 (causes). Returns 0 when CUPTI records, 1 when the window is open without CUPTI
   (no GPU, or the reason in fullwatt_trouble()). */
int fullwatt_window_open(int mode);
void fullwatt_window_close(void);
/* Another profiler in this process starts (1) or has ended (0): CUPTI has one seat, and it is the user's. */
void fullwatt_yield(int yes, const char* to_whom);

/* The window that was asked for cannot be opened now (a CUDA graph is being captured): ask again later. */
void fullwatt_postpone(void);

/* Flushes and lets go. In a forked child: forgets the parent's spool without touching it. */
void fullwatt_close(void);
void fullwatt_forked(void);

/* Called by the CUDA driver. */
int InitializeInjection(void);

#pragma GCC visibility pop

#if defined(__cplusplus)
}
#endif
