#include <gtest/gtest.h>

#include "fullwatt/tune/near_cpus.hpp"

namespace fullwatt::tune {
namespace {

constexpr const char* kGpu = "0000:17:00.0";

base::TreeFiles machine(const std::string& list) {
  base::Tree tree;
  tree["/sys/bus/pci/devices/0000:17:00.0/local_cpulist"].text = list;
  return base::TreeFiles(std::move(tree));
}

std::string near(const std::string& list, const std::set<int>& usable) {
  auto files = machine(list);
  return near_cpus(files, kGpu, usable);
}

TEST(NearCpus, AreThoseOfTheGpusSocketThatMayBeUsed) {
  EXPECT_EQ(near("0-3,8-11\n", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "0-3,8-11");
  EXPECT_EQ(near("0-3,8-11\n", {1, 3, 4, 5, 9}), "1,3,9");
  EXPECT_EQ(near("2\n", {1, 2, 3}), "2");
}

TEST(NearCpus, AreNotNamedWhereAllAreOrNoneIs) {
  EXPECT_EQ(near("0-3\n", {0, 1, 2, 3}), "");
  EXPECT_EQ(near("0-63\n", {4, 5}), "");
  EXPECT_EQ(near("0-3\n", {4, 5}), "");
}

TEST(NearCpus, AreNotNamedWhereNothingIsKnown) {
  base::TreeFiles files{base::Tree()};
  EXPECT_EQ(near_cpus(files, kGpu, {0, 1}), "");
  EXPECT_EQ(near_cpus(files, "", {0, 1}), "");
  EXPECT_EQ(near("\n", {0, 1}), "");
  EXPECT_EQ(near("0-x", {0, 1}), "");
}

}  // namespace
}  // namespace fullwatt::tune
