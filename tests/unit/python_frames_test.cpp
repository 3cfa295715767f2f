// The frames of a Python thread, read while it goes on: whatever its memory holds at that moment, reading it is
// harmless.

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fullwatt/vendor/python/frames.hpp"

namespace fullwatt::vendor::python {
namespace {

using Word = std::uintptr_t;
using Frame = std::array<Word, FrameReader::kFrameWords>;
constexpr FrameReader::Layout kLayout{.top = 1, .by = 0, .code = 0, .previous = 1, .instruction = 7};
constexpr Word kFirstInstruction = 16;

template <class Thing>
Word address_of(Thing& thing) {
  return reinterpret_cast<Word>(&thing);
}

/// A thread whose frames lie in memory as a test has put them.
class Thread {
 public:
  explicit Thread(Word innermost) : holder_{innermost} { state_[1] = address_of(holder_); }

  std::vector<Place> stack() const {
    std::array<Place, 20> places;
    const auto count = FrameReader(reinterpret_cast<Word>(state_.data()), kFirstInstruction, kLayout).read(places);
    return {places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  std::array<Word, 1> holder_;
  std::array<Word, 2> state_{};
};

TEST(PythonFrames, AStackIsReadFromTheInside) {
  constexpr Word kCode = 0x10000;
  std::vector<Frame> frames(3);
  for (Word i = 0; i < 3; ++i) {
    frames[i][0] = kCode * (i + 1);
    frames[i][1] = i > 0 ? address_of(frames[i - 1]) : 0;
    frames[i][7] = frames[i][0] + kFirstInstruction + 2 * i;
  }
  const std::vector<Place> expected{{3 * kCode, 4}, {2 * kCode, 2}, {kCode, 0}};
  EXPECT_EQ(Thread(address_of(frames[2])).stack(), expected);
}

TEST(PythonFrames, AStackThatBitesItsTailEnds) {
  Frame frame{};
  frame[1] = address_of(frame);
  EXPECT_EQ(Thread(address_of(frame)).stack().size(), 20U);
}

TEST(PythonFrames, GarbageIsHarmless) {
  constexpr Word kLargest = std::numeric_limits<Word>::max();
  for (const Word garbage : {Word{0}, Word{1}, Word{8}, Word{4096}, Word{1} << 47U, Word{1} << 63U, kLargest,
                             kLargest - 7, kLargest - 80, kLargest - 4096}) {
    EXPECT_TRUE(Thread(garbage).stack().empty()) << garbage;
    Frame frame{};
    frame[1] = garbage;
    EXPECT_EQ(Thread(address_of(frame)).stack().size(), 1U) << garbage;
  }
}

TEST(PythonFrames, FramesAtTheEdgeOfWhatIsMappedAreHarmless) {
  constexpr std::size_t kPage = 4096;
  auto* pages =
      static_cast<char*>(::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::munmap(pages, kPage), 0);
  ASSERT_EQ(::munmap(pages + 2 * kPage, kPage), 0);
  const auto begin = reinterpret_cast<Word>(pages) + kPage;
  for (std::size_t offset = 0; offset < 3 * kPage; offset += sizeof(Word)) {
    const auto at = begin - kPage + offset;
    const bool whole = at >= begin && at + sizeof(Frame) <= begin + kPage;
    EXPECT_EQ(Thread(at).stack().size(), whole ? 1U : 0U) << offset;
  }
  ::munmap(pages + kPage, kPage);
}

TEST(PythonFrames, RandomMemoryIsHarmless) {
  std::mt19937_64 random(1);
  std::vector<Frame> frames(64);
  for (int round = 0; round < 20'000; ++round) {
    auto& frame = frames[random() % frames.size()];
    const std::array<Word, 4> values{random(), address_of(frames[random() % frames.size()]), random() % 5000,
                                     address_of(frame) + random() % 80};
    frame[random() % frame.size()] = values[random() % values.size()];
    EXPECT_LE(Thread(address_of(frame)).stack().size(), 20U);
  }
}

}  // namespace
}  // namespace fullwatt::vendor::python
