// What a start took of its card, and what was left to it.

#include <gtest/gtest.h>

#include "fullwatt/tune/trial.hpp"

namespace fullwatt::tune {
namespace {

/// Two cards, of which the smaller one holds the model.
explain::ProcessFacts facts() {
  explain::ProcessFacts facts;
  facts.gpus = {{.index = 0, .memory_bytes = 24'000}, {.index = 1, .memory_bytes = 8'000}};
  facts.memory = explain::MemoryFact{.device = "1",
                                     .peak_allocated_bytes = 3'000,
                                     .peak_reserved_bytes = 3'500,
                                     .training_peak_bytes = 2'000,
                                     .card_bytes = 7'900,
                                     .allowed_bytes = 7'900,
                                     .beside_bytes = 900};
  return facts;
}

TEST(CardMemoryTest, WhatOthersUseOfTheTrainedCardIsNotLeft) {
  const auto memory = card_memory(facts());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit_bytes, 7'000);
  EXPECT_EQ(memory->training_bytes, 2'000);
  EXPECT_EQ(memory->peak_bytes, 3'000);
  EXPECT_EQ(memory->held_bytes, 3'500);
  EXPECT_FALSE(memory->ran_out);
}

TEST(CardMemoryTest, ALimitOfTheProgramsOwnIsTheLimit) {
  auto told = facts();
  told.memory->allowed_bytes = 4'000;
  EXPECT_EQ(card_memory(told)->limit_bytes, 4'000);
  told.memory->beside_bytes = 6'000;
  EXPECT_EQ(card_memory(told)->limit_bytes, 1'900) << "unless others leave less";
  told.memory->beside_bytes = 9'000;
  EXPECT_EQ(card_memory(told)->limit_bytes, 0);
}

TEST(CardMemoryTest, WhereTorchDoesNotTellTheCardIsTheOneOfThatNumber) {
  auto told = facts();
  told.memory->card_bytes = told.memory->allowed_bytes = told.memory->beside_bytes = std::nullopt;
  told.memory->training_peak_bytes = std::nullopt;
  EXPECT_EQ(card_memory(told)->limit_bytes, 8'000);
  EXPECT_EQ(card_memory(told)->training_bytes, 3'000);
  told.memory->device = "7";
  EXPECT_FALSE(card_memory(told));
}

TEST(CardMemoryTest, MemoryThatRanOutIsToldEvenIfTheProgramWentOn) {
  auto told = facts();
  told.memory->oom = 1;
  EXPECT_TRUE(card_memory(told)->ran_out);
  told.memory = std::nullopt;
  EXPECT_FALSE(card_memory(told)) << "on a CPU";
}

}  // namespace
}  // namespace fullwatt::tune
