#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "fullwatt/engine/group.hpp"

namespace fullwatt::engine {
namespace {

using namespace std::chrono_literals;

/// Every exchange of a group of one, by Gloo or NCCL: nothing changes, and nothing fails.
void exchange_alone(at::Device device) {
  auto group = Group::join(Place{}, device, 60s);
  ASSERT_TRUE(group) << group.error().message;
  const auto numbers = at::arange(1000, at::TensorOptions().device(device).dtype(at::kFloat));
  const auto tensor = numbers.clone();
  EXPECT_TRUE((*group)->broadcast({tensor}));
  EXPECT_TRUE((*group)->all_reduce(tensor));
  const auto begun = (*group)->begin_sum(tensor);
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_TRUE((*group)->end(*begun));
  EXPECT_TRUE(at::equal(tensor, numbers));
  EXPECT_TRUE((*group)->any(true).value_or(false));
  EXPECT_FALSE((*group)->any(false).value_or(true));
  EXPECT_TRUE((*group)->barrier());
  EXPECT_TRUE((*group)->check());
}

TEST(GroupTest, OneProcessOnTheCpu) {
  exchange_alone(at::kCPU);
}

TEST(GroupTest, OneProcessOnTheGpu) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "skipped: no GPU";
  exchange_alone(at::Device(at::kCUDA, 0));
}

}  // namespace
}  // namespace fullwatt::engine
