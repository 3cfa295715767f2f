// The engine's loader, for any data, batch size and number of threads: every sample once in each epoch, in an order
// that only the seed decides, also from where a training goes on.

#include "fullwatt/engine/data/loader.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace fullwatt::engine {
namespace {

/// Sample n has the number n in its first field and n times 1000 + its place in the second.
class Numbers final : public DataSet {
 public:
  Numbers(std::int64_t samples, std::int64_t width) {
    samples_ = samples;
    fields_ = {{"number", Dtype::int64, {}}, {"row", Dtype::int64, {width}}};
  }

  base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const override {
    for (const auto sample : samples) {
      if (sample == broken) return base::fail(base::Error::Kind::unavailable, "sample is broken");
      const auto width = field == 0 ? 1 : fields_[1].shape[0];
      for (std::int64_t i = 0; i < width; ++i, to += sizeof(std::int64_t)) {
        const auto value = field == 0 ? sample : sample * 1000 + i;
        std::memcpy(to, &value, sizeof(value));
      }
    }
    return {};
  }

  std::int64_t broken = -1;
};

struct Seen {
  std::uint64_t epoch;
  std::uint64_t number;
  std::vector<std::int64_t> samples;

  bool operator==(const Seen&) const = default;
};

std::vector<Seen> read_all(const DataSet& data, const LoaderOptions& options) {
  Loader loader(data, options);
  std::vector<Seen> seen;
  for (;;) {
    const auto batch = loader.next();
    RC_ASSERT(batch.has_value());
    if (!*batch) return seen;
    const auto* numbers = reinterpret_cast<const std::int64_t*>((*batch)->field(0));
    const auto* rows = reinterpret_cast<const std::int64_t*>((*batch)->field(1));
    seen.push_back({(*batch)->epoch(), (*batch)->number(), {numbers, numbers + (*batch)->samples()}});
    const auto width = data.fields()[1].shape[0];
    for (std::int64_t i = 0; i < (*batch)->samples(); ++i) {
      for (std::int64_t k = 0; k < width; ++k) RC_ASSERT(rows[i * width + k] == numbers[i] * 1000 + k);
    }
  }
}

LoaderOptions any_options() {
  LoaderOptions options;
  options.batch = *rc::gen::inRange(1, 12);
  options.threads = *rc::gen::inRange(1, 5);
  options.ahead = *rc::gen::inRange(1, 6);
  options.shuffled = *rc::gen::arbitrary<bool>();
  options.seed = *rc::gen::arbitrary<std::uint64_t>();
  options.drop_last = *rc::gen::arbitrary<bool>();
  options.epochs = *rc::gen::inRange(1, 4);
  return options;
}

RC_GTEST_PROP(LoaderTest, EverySampleComesOnceInEachEpoch, ()) {
  const Numbers data(*rc::gen::inRange(0, 60), *rc::gen::element(1, 7, 7, 7, 30'000));
  const auto options = any_options();
  const auto seen = read_all(data, options);
  const auto whole = data.samples() / options.batch * options.batch;
  const auto expected = options.drop_last ? whole : data.samples();
  std::vector<std::vector<std::int64_t>> epochs(options.epochs);
  for (const auto& batch : seen) {
    auto& epoch = epochs.at(batch.epoch);
    RC_ASSERT(batch.number == epoch.size() / static_cast<std::size_t>(options.batch));
    epoch.insert(epoch.end(), batch.samples.begin(), batch.samples.end());
  }
  for (auto& epoch : epochs) {
    RC_ASSERT(static_cast<std::int64_t>(epoch.size()) == expected);
    if (!options.shuffled) RC_ASSERT(std::ranges::is_sorted(epoch));
    RC_ASSERT(std::set<std::int64_t>(epoch.begin(), epoch.end()).size() == epoch.size());
  }
}

RC_GTEST_PROP(LoaderTest, ATrainingThatGoesOnSeesWhatWouldHaveCome, ()) {
  const Numbers data(*rc::gen::inRange(1, 60), 2);
  auto options = any_options();
  const auto whole = read_all(data, options);
  RC_PRE(!whole.empty());
  const auto from = *rc::gen::inRange<std::size_t>(0, whole.size());
  options.first_epoch = whole[from].epoch;
  options.first_batch = whole[from].number;
  options.threads = *rc::gen::inRange(1, 5);
  const auto rest = read_all(data, options);
  RC_ASSERT(rest == std::vector<Seen>(whole.begin() + static_cast<std::ptrdiff_t>(from), whole.end()));
}

RC_GTEST_PROP(LoaderTest, ProcessesThatShareTheSamplesSeeWhatOneWouldHave, ()) {
  const Numbers data(*rc::gen::inRange(1, 60), 2);
  auto options = any_options();
  options.drop_last = true;
  options.parts = *rc::gen::inRange(1, 5);
  std::vector<std::vector<Seen>> seen;
  for (options.part = 0; options.part < options.parts; ++options.part) seen.push_back(read_all(data, options));
  options.batch *= std::exchange(options.parts, 1);
  options.part = 0;
  const auto alone = read_all(data, options);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    Seen together{alone[i].epoch, alone[i].number, {}};
    for (const auto& share : seen) {
      RC_ASSERT(share.size() == alone.size());
      together.samples.insert(together.samples.end(), share[i].samples.begin(), share[i].samples.end());
    }
    RC_ASSERT(together == alone[i]);
  }
}

TEST(LoaderTest, WhatCannotBeFetchedIsToldWithTheBatch) {
  Numbers data(10, 1);
  data.broken = 5;
  Loader loader(data, {.batch = 2, .threads = 2, .ahead = 2, .shuffled = false});
  EXPECT_TRUE(loader.next().has_value());
  EXPECT_TRUE(loader.next().has_value());
  EXPECT_EQ(loader.next().error().message, "sample is broken");
}

TEST(LoaderTest, BatchesMayBeKeptAsLongAsOneIsLeft) {
  const Numbers data(20, 1);
  Loader loader(data, {.batch = 2, .threads = 2, .ahead = 2, .shuffled = false});
  auto first = loader.next();
  {
    const auto second = loader.next();
    EXPECT_EQ((*second)->number(), 1U);
    EXPECT_EQ(loader.next().error().message, "all batches of the loader are lent");
  }
  EXPECT_EQ(loader.next().error().message, "all batches of the loader are lent") << "the first one is its turn";
  first->reset();
  EXPECT_EQ((*loader.next())->number(), 2U);
  EXPECT_EQ((*loader.next())->number(), 3U);
}

TEST(LoaderTest, ABatchThatIsExchangedIsNotFilledAgain) {
  const Numbers data(40, 3);
  Loader loader(data, {.batch = 2, .threads = 2, .ahead = 2, .shuffled = false});
  const auto memory = HostMemory::ordinary();
  std::vector<std::byte*> kept;
  for (std::int64_t first = 0; first < data.samples(); first += 2) {
    while (!loader.is_ready(std::chrono::milliseconds(1))) {
    }
    auto batch = loader.next();
    ASSERT_TRUE(batch && *batch);
    kept.push_back((*batch)->exchange(1, memory.allocate(2 * data.fields()[1].sample_bytes())));
  }
  EXPECT_TRUE(loader.is_ready(std::chrono::milliseconds(0))) << "the end is there at once";
  EXPECT_FALSE(loader.next()->has_value());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<const std::int64_t*>(kept[i])[2], static_cast<std::int64_t>(2 * i) * 1000 + 2);
    memory.release(kept[i]);
  }
}

}  // namespace
}  // namespace fullwatt::engine
