#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <regex>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/event_file.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

static_assert(std::is_nothrow_move_constructible_v<EventFile> && std::is_nothrow_move_assignable_v<EventFile>);
static_assert(!std::is_copy_constructible_v<EventFile> && !std::is_copy_assignable_v<EventFile>);

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const auto byte : bytes) {
    rest ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? (rest >> 1U) ^ 0x82F63B78U : rest >> 1U;
  }
  return rest ^ 0xFFFFFFFF;
}

std::uint32_t masked(std::uint32_t sum) {
  return ((sum >> 15U) | (sum << 17U)) + 0xA282EAD8U;
}

/// Takes bytes from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool is_empty() const { return left_.empty(); }
  std::string_view take(std::size_t bytes) {
    if (bytes > left_.size()) throw std::runtime_error("cut off");
    const auto taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  template <class T>
  T fixed() {
    T value{};
    unsigned shift = 0;
    for (const auto byte : take(sizeof(value))) {
      value = static_cast<T>(value | static_cast<T>(T{static_cast<unsigned char>(byte)} << shift));
      shift += 8;
    }
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<unsigned char>();
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80U) return value;
    }
    throw std::runtime_error("a varint without an end");
  }

 private:
  std::string_view left_;
};

/// The value of a protobuf field: one of the two.
struct Field {
  std::uint64_t number = 0;
  std::string bytes;
};

using Message = std::map<std::uint64_t, Field>;

Field read_field(Reader& reader, std::uint64_t wire) {
  switch (wire) {
    case 0:
      return {reader.varint(), {}};
    case 1:
      return {reader.fixed<std::uint64_t>(), {}};
    case 2:
      return {0, std::string(reader.take(reader.varint()))};
    case 5:
      return {reader.fixed<std::uint32_t>(), {}};
    default:
      throw std::runtime_error("an unknown wire type");
  }
}

Message read_message(std::string_view bytes) {
  Message message;
  for (Reader reader(bytes); !reader.is_empty();) {
    const auto key = reader.varint();
    if (!message.emplace(key >> 3U, read_field(reader, key & 7U)).second) throw std::runtime_error("a field twice");
  }
  return message;
}

/// The bytes of the records of a file whose checksums are right.
std::vector<std::string> read_records(const std::string& bytes) {
  std::vector<std::string> records;
  for (Reader reader(bytes); !reader.is_empty();) {
    const auto length = reader.take(8);
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(crc32c(length)));
    const auto data = reader.take(Reader(length).fixed<std::uint64_t>());
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(crc32c(data)));
    records.emplace_back(data);
  }
  return records;
}

double wall_time_of(const Message& event) {
  return std::bit_cast<double>(event.at(1).number);
}

std::int64_t step_of(const Message& event) {
  return static_cast<std::int64_t>(event.at(2).number);
}

Message value_of(const Message& event) {
  return read_message(read_message(event.at(5).bytes).at(1).bytes);
}

std::string tag_of(const Message& event) {
  return value_of(event).at(1).bytes;
}

float scalar_of(const Message& event) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value_of(event).at(2).number));
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// As on a disk that has room for so many bytes of a file.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const ::rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  ::rlimit old_limit_{};
};

class EventFileTest : public testing::Test {
 protected:
  EventFile create() const { return EventFile::create(folder_.path()).value(); }
  static std::vector<Message> read(const std::string& path) {
    std::vector<Message> events;
    for (const auto& record : read_records(tests::read_all(path))) events.push_back(read_message(record));
    return events;
  }

  tests::TempFolder folder_;
};

TEST(Crc32cTest, HasTheKnownValueOfTheDigits) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
}

TEST_F(EventFileTest, BeginsWithItsVersionUnderANameThatTensorBoardKnows) {
  const auto before = now();
  const auto file = create();
  const auto events = read(file.path());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at(3).bytes, "brain.Event:2");
  EXPECT_EQ(events[0].size(), 2U);
  EXPECT_GE(wall_time_of(events[0]), before);
  EXPECT_LE(wall_time_of(events[0]), now());
  const std::regex name(R"(events\.out\.tfevents\.[0-9]{10}\..*\.)" + std::to_string(::getpid()) + R"(\.0)");
  EXPECT_TRUE(std::regex_match(std::string(base::file_name(file.path())), name)) << file.path();
}

TEST_F(EventFileTest, ScalarsComeBackWithStepTagAndValue) {
  struct Given {
    std::uint64_t step;
    std::string tag;
    double value;
  };
  const std::vector<Given> given{
      {0, "loss/train", 0.75},
      {1, "loss/train", -1e-30},
      {127, "a", 0},
      {128, "", 3},
      {std::uint64_t{1} << 40U, "größe", 1e9},
      {std::numeric_limits<std::int64_t>::max(), "large", std::numeric_limits<double>::infinity()},
      {static_cast<std::uint64_t>(-5), "negative", 2},
      {7, std::string(100'000, 't'), 1},
  };
  const auto before = now();
  auto file = create();
  for (const auto& [step, tag, value] : given) file.scalar(step, tag, value);
  EXPECT_FALSE(file.error());
  const auto events = read(file.path());
  ASSERT_EQ(events.size(), given.size() + 1);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& event = events[i + 1];
    EXPECT_EQ(step_of(event), static_cast<std::int64_t>(given[i].step));
    EXPECT_EQ(tag_of(event), given[i].tag);
    EXPECT_EQ(scalar_of(event), static_cast<float>(given[i].value));
    EXPECT_GE(wall_time_of(event), before);
    EXPECT_LE(wall_time_of(event), now());
  }
}

TEST_F(EventFileTest, ARestartIsTheStartOfASessionAtItsStep) {
  auto file = create();
  file.restart(17);
  file.scalar(17, "loss", 1);
  const auto events = read(file.path());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(step_of(events[1]), 17);
  EXPECT_EQ(read_message(events[1].at(7).bytes).at(1).number, 1U) << "SessionLog.START";
  EXPECT_FALSE(events[1].contains(5)) << "no summary";
}

TEST_F(EventFileTest, ALossThatIsNoNumberIsWrittenAsSuch) {
  auto file = create();
  file.scalar(1, "loss", std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(scalar_of(read(file.path()).at(1))));
}

TEST_F(EventFileTest, TextIsAStringTensorForTheTextTab) {
  const std::string config("train:\n  lr: 0.1 # größer\n");
  auto file = create();
  file.text(3, "config", config);
  const auto event = read(file.path()).at(1);
  EXPECT_EQ(step_of(event), 3);
  EXPECT_EQ(tag_of(event), "config");
  const auto value = value_of(event);
  EXPECT_EQ(read_message(read_message(value.at(9).bytes).at(1).bytes).at(1).bytes, "text");
  const auto tensor = read_message(value.at(8).bytes);
  EXPECT_EQ(tensor.at(1).number, 7U);
  EXPECT_EQ(tensor.at(2).bytes, "");
  EXPECT_EQ(tensor.at(8).bytes, config);
}

TEST_F(EventFileTest, ATagThatIsNoTextIsMadeOne) {
  auto file = create();
  file.scalar(1, "los\xFFs", 1);
  EXPECT_EQ(tag_of(read(file.path()).at(1)), "los\uFFFDs");
}

TEST_F(EventFileTest, FilesOfTheSameSecondLieSideBySide) {
  auto first = create();
  auto second = create();
  first.scalar(1, "loss", 1);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(read(first.path()).size(), 2U);
  EXPECT_EQ(read(second.path()).size(), 1U);
}

TEST_F(EventFileTest, AMovedFileGoesOn) {
  auto first = create();
  auto second = std::move(first);
  second.scalar(1, "loss", 1);
  auto third = create();
  third = std::move(second);
  third.scalar(2, "loss", 1);
  third.flush();
  EXPECT_FALSE(third.error());
  EXPECT_EQ(read(third.path()).size(), 3U);
}

TEST_F(EventFileTest, AKilledTrainingLeavesAllItsRecords) {
  const auto train = [&] {
    auto file = create();
    for (std::uint64_t step = 1; step <= 100; ++step) file.scalar(step, "loss", 1);
    ::kill(::getpid(), SIGKILL);
  };
  EXPECT_EXIT(train(), testing::KilledBySignal(SIGKILL), "");
  const auto path = std::filesystem::directory_iterator(folder_.path())->path();
  EXPECT_EQ(read(path).size(), 101U);
}

TEST_F(EventFileTest, AFullDiskEndsTheFileAfterAWholeRecordAndNotTheTraining) {
  auto file = create();
  file.scalar(1, "loss", 1);
  const auto whole = tests::read_all(file.path());
  {
    const FileSizeLimit limit(whole.size() + 10);
    file.scalar(2, "loss", 1);
  }
  ASSERT_TRUE(file.error());
  EXPECT_TRUE(contains(file.error()->message, file.path() + " ends early: File too large")) << file.error()->message;
  EXPECT_TRUE(contains(file.error()->remedy, "Make room"));
  EXPECT_EQ(tests::read_all(file.path()), whole);
}

TEST_F(EventFileTest, NothingIsWrittenAfterAFailure) {
  auto file = create();
  const auto whole = tests::read_all(file.path());
  {
    const FileSizeLimit limit(whole.size());
    file.scalar(1, "loss", 1);
  }
  const auto message = file.error().value().message;
  auto moved = std::move(file);
  moved.scalar(2, "loss", 1);
  moved.text(2, "config", "");
  moved.flush();
  EXPECT_EQ(moved.error().value().message, message);
  EXPECT_EQ(tests::read_all(moved.path()), whole);
}

TEST_F(EventFileTest, AFileThatCannotBeMadeIsToldWithARemedy) {
  const auto missing = EventFile::create(folder_ / "none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, base::Error::Kind::not_found);
  EXPECT_TRUE(contains(missing.error().message, folder_ / "none: No such file or directory"));
  EXPECT_TRUE(contains(missing.error().remedy, "Name a folder"));
}

TEST_F(EventFileTest, AFileWithoutRoomForItsFirstRecordIsNotMade) {
  const auto file = [&] {
    const FileSizeLimit limit(0);
    return EventFile::create(folder_.path());
  }();
  ASSERT_FALSE(file);
  EXPECT_TRUE(contains(file.error().message, "File too large"));
}

}  // namespace
}  // namespace fullwatt::engine
