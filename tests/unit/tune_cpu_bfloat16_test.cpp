#include <gtest/gtest.h>

#include "fullwatt/tune/cpu_bfloat16.hpp"

namespace fullwatt::tune {
namespace {

bool knows(const std::string& cpuinfo) {
  base::Tree tree;
  tree["/proc/cpuinfo"].text = cpuinfo;
  base::TreeFiles files(std::move(tree));
  return cpu_knows_bfloat16(files);
}

TEST(CpuBfloat16, IsKnownWhereTheKernelListsIt) {
  EXPECT_TRUE(knows("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 clflush\nprocessor\t: 1\n"));
  EXPECT_TRUE(knows("flags\t\t: fpu amx_bf16\n"));
  EXPECT_TRUE(knows("Features\t: fp asimd i8mm bf16 dgh\n"));
}

TEST(CpuBfloat16, IsNotKnownElsewhere) {
  EXPECT_FALSE(knows("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n"));
  EXPECT_FALSE(knows("model name\t: my_bf16_chip\nflags\t\t: fpu\n"));
  base::TreeFiles nothing{base::Tree()};
  EXPECT_FALSE(cpu_knows_bfloat16(nothing));
}

}  // namespace
}  // namespace fullwatt::tune
