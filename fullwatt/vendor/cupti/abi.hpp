#pragma once

#include <cstddef>
#include <cstdint>

/// The part of CUPTI's C interface that we call, as cupti_activity.h and cupti_callbacks.h have it. Of each activity
/// record only the start is declared: it is the same from CUPTI 11 (Kernel4, Memcpy4) to 13 (Kernel10, Memcpy6), newer
/// versions append.
namespace fullwatt::vendor::cupti::abi {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kMaxLimitReached = 12;      ///< no further record in the buffer
constexpr Result kMultipleSubscribers = 39;  ///< another tool holds the only seat

struct SubscriberHandle;
using Subscriber = SubscriberHandle*;

constexpr std::uint32_t kKindCopy = 1;
constexpr std::uint32_t kKindFill = 2;
constexpr std::uint32_t kKindConcurrentKernel = 10;

constexpr std::uint32_t kDomainDriver = 1;
constexpr std::uint32_t kDomainRuntime = 2;
constexpr std::uint32_t kFlushForced = 1;
constexpr std::uint32_t kSiteEnter = 0;
constexpr std::uint32_t kSiteExit = 1;
constexpr std::size_t kAlignment = 8;

/// The calls that are recorded, by CUPTI's numbers (cupti_driver_cbid.h): those that launch, copy, fill, wait, allocate
/// or load. They are the driver's, which the runtime calls in turn: hearing of both costs twice.
constexpr std::uint32_t kCalls[] = {
    17,  18,  19,  20,  21,  38,  39,  121, 126, 216, 218, 220, 222, 224, 226, 243, 244, 245, 249, 250, 251, 252, 253,
    254, 271, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 294, 301, 302,
    305, 306, 307, 318, 319, 320, 321, 365, 371, 379, 397, 398, 399, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409,
    410, 411, 412, 413, 414, 415, 416, 418, 419, 420, 421, 422, 423, 424, 425, 426, 427, 428, 429, 430, 431, 432, 433,
    440, 442, 467, 468, 477, 478, 480, 513, 514, 515, 527, 528, 549, 550, 551, 552, 553, 578, 598, 599, 600, 601, 611,
    612, 643, 652, 653, 656, 657, 678, 679, 716, 717, 776, 777, 778, 779, 796, 797, 798, 799, 800};

/// And the runtime's that do not come by those (cupti_runtime_cbid.h): cudaThreadSynchronize, cudaDeviceSynchronize.
/// Each call of the runtime has a switch of its own, so that no other one gets slower.
constexpr std::uint32_t kRuntimeCalls[] = {126, 165};

struct KernelHead {
  std::uint32_t kind;
  std::uint8_t cache_config;
  std::uint8_t shared_config;
  std::uint16_t registers;
  std::uint32_t cache_requested;
  std::uint32_t cache_executed;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::int32_t grid[3];
  std::int32_t block[3];
  std::int32_t static_shared;
  std::int32_t dynamic_shared;
  std::uint32_t local_per_thread;
  std::uint32_t local_total;
  std::uint32_t correlation;
  std::int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelHead, start) == 16 && offsetof(KernelHead, grid) == 52);
static_assert(offsetof(KernelHead, correlation) == 92 && offsetof(KernelHead, name) == 104);

struct CopyHead {
  std::uint32_t kind;
  std::uint8_t copy_kind;
  std::uint8_t source_kind;
  std::uint8_t destination_kind;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
};
static_assert(offsetof(CopyHead, stream) == 40);

struct FillHead {
  std::uint32_t kind;
  std::uint32_t value;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
};

/// CUpti_CallbackData up to what is read of it.
struct CallbackHead {
  std::uint32_t site;
  const char* function;
  const void* parameters;
  void* return_value;
  const char* symbol;
  void* context;
  std::uint32_t context_id;
  std::uint64_t* shared;
  std::uint32_t correlation;
};
static_assert(offsetof(CallbackHead, function) == 8 && offsetof(CallbackHead, correlation) == 64);

using Callback = void(void* user, std::uint32_t domain, std::uint32_t id, const void* data);
using BufferRequested = void(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records);
using BufferCompleted = void(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                             std::size_t valid_bytes);

}  // namespace fullwatt::vendor::cupti::abi
