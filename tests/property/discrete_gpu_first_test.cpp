// P1: the discrete GPU is chosen on every machine that has one.

#include <algorithm>
#include <random>
#include <string>

#include "tests/support/machines.hpp"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/select.hpp"

namespace fullwatt::doctor {
namespace {

using base::absent;
using base::Absent;
using model::Machine;
using tests::kGib;

enum class Kind { nvidia_discrete, nvidia_integrated, intel, amd_discrete, amd_integrated };

/// One GPU of a random machine, and all that may be wrong with it.
struct Card {
  Kind kind = Kind::nvidia_discrete;
  std::string bdf;
  std::string uuid;
  std::string capability;
  int cores = 0;
  int slices = -1;  ///< of MIG; -1: MIG is off
  bool busy = false;
  bool full = false;
  bool fell_off = false;
  bool other_driver = false;
  bool excluded = false;
  bool lost = false;
  bool prohibited = false;
  bool exclusive = false;
  bool has_process = false;
  bool in_nvml = true;
  bool kernel_fails = false;

  bool is_nvidia() const { return kind == Kind::nvidia_discrete || kind == Kind::nvidia_integrated; }
  bool is_discrete() const { return kind == Kind::nvidia_discrete || kind == Kind::amd_discrete; }
};

struct Plan {
  std::vector<Card> cards;
  bool nvml = true;
  bool cuda = true;  ///< asked; else it sleeps
  bool cuda_starts = true;
  std::optional<std::string> visible_devices;
};

/// True once in `of` times.
bool rarely(int of) {
  return *rc::gen::inRange(0, of) == 0;
}

Card random_card(int slot) {
  Card card;
  card.kind = *rc::gen::element(Kind::nvidia_discrete, Kind::nvidia_discrete, Kind::nvidia_integrated, Kind::intel,
                                Kind::amd_discrete, Kind::amd_integrated);
  card.bdf = "0000:0" + std::to_string(slot) + ":00.0";
  card.uuid = "GPU-" + std::to_string(*rc::gen::inRange(1, 4)) + std::to_string(slot) + "111111";
  card.capability = *rc::gen::element<std::string>("6.1", "8.9", "9.0", "12.0", "");
  card.cores = *rc::gen::inRange(0, 30'000);
  card.slices = rarely(5) ? *rc::gen::inRange(0, 3) : -1;
  card.busy = rarely(3);
  card.full = rarely(4);
  card.fell_off = rarely(10);
  card.other_driver = rarely(8);
  card.excluded = rarely(12);
  card.lost = rarely(10);
  card.prohibited = rarely(10);
  card.exclusive = rarely(8);
  card.has_process = rarely(3);
  card.in_nvml = !rarely(12);
  card.kernel_fails = rarely(8);
  return card;
}

std::string random_token(const std::vector<Card>& cards) {
  const auto index = std::to_string(*rc::gen::inRange(-1, 7));
  if (cards.empty() || rarely(2))
    return rarely(6) ? *rc::gen::element<std::string>("", "x", " 1", "GPU-", "none") : index;
  const auto& uuid = (*rc::gen::elementOf(cards)).uuid;
  return uuid.substr(0, static_cast<std::size_t>(*rc::gen::inRange(5, static_cast<int>(uuid.size()) + 1)));
}

Plan random_plan() {
  Plan plan;
  const int count = *rc::gen::inRange(0, 6);
  for (int slot = 1; slot <= count; ++slot) plan.cards.push_back(random_card(slot));
  plan.nvml = !rarely(5);
  plan.cuda = !rarely(3);
  plan.cuda_starts = !rarely(6);
  if (rarely(2)) {
    std::vector<std::string> tokens;
    const int tokens_wanted = *rc::gen::inRange(0, 4);
    for (int i = 0; i < tokens_wanted; ++i) tokens.push_back(random_token(plan.cards));
    plan.visible_devices = base::join(tokens, ",");
  }
  return plan;
}

/// Which cards CUDA_VISIBLE_DEVICES leaves, as CUDA's documentation says: entries count until the first one that
/// names nothing; an index counts NVIDIA's GPUs in PCI order; a UUID may be cut short.
std::vector<std::string> visible_cards(const Plan& plan) {
  std::vector<std::string> nvidia;
  for (const auto& card : plan.cards) {
    if (card.is_nvidia()) nvidia.push_back(card.uuid);
  }
  if (!plan.visible_devices) return nvidia;
  std::vector<std::string> visible;
  for (auto token : base::split(*plan.visible_devices, ',')) {
    token = base::trim(token);
    const auto index = base::number<std::size_t>(token);
    if (!index && !token.starts_with("GPU-")) break;
    for (std::size_t i = 0; i < nvidia.size(); ++i) {
      if (index ? *index == i : nvidia[i].starts_with(token)) visible.push_back(nvidia[i]);
    }
  }
  return visible;
}

void add_card(Machine& machine, const Plan& plan, const Card& card, bool visible) {
  if (!card.is_nvidia()) {
    auto pci =
        tests::pci_gpu(card.bdf, card.kind == Kind::intel ? model::kIntel : model::kAmd, "other", card.is_discrete());
    pci.driver = card.kind == Kind::intel ? "i915" : "amdgpu";
    machine.hardware.gpus.push_back(pci);
    return;
  }
  tests::add_nvidia(machine, {.bdf = card.bdf,
                              .uuid = card.uuid,
                              .name = "NVIDIA",
                              .compute_capability = card.capability,
                              .memory_bytes = 8 * kGib,
                              .cores = card.cores,
                              .discrete = card.is_discrete()});
  auto& pci = machine.hardware.gpus.back();
  pci.config_all_ones = card.fell_off;
  if (card.other_driver) pci.driver = "vfio-pci";
  if (card.excluded) pci.proc_excluded = "Yes";
  auto& nvml = machine.nvml.devices.back();
  nvml.handle_code = card.lost ? 15 : 0;
  nvml.utilization_gpu = card.busy ? 90 : 3;
  if (card.full) nvml.memory_free_bytes = 0;
  nvml.compute_mode = card.prohibited ? 2 : card.exclusive ? 3 : 0;
  if (card.has_process) nvml.processes = std::vector<model::GpuProcess>{{1, kGib, "compute", "python"}};
  nvml.mig_enabled = card.slices >= 0;
  for (int i = 0; i < card.slices; ++i)
    nvml.mig_slices.push_back({"MIG-" + card.uuid + std::to_string(i), "slice", kGib, kGib});
  if (!card.in_nvml || !plan.nvml) machine.nvml.devices.pop_back();
  machine.cuda.answers.devices.back().launch = card.kernel_fails ? 719 : 0;
  if (!visible || !plan.cuda) machine.cuda.answers.devices.pop_back();
}

Machine machine_of(const Plan& plan) {
  auto machine = tests::machine_without_gpu();
  if (!plan.nvml) machine.nvml.init = absent(Absent::asleep);
  if (!plan.cuda) machine.cuda.answers.init = absent(Absent::asleep);
  if (plan.visible_devices) machine.host.environment["CUDA_VISIBLE_DEVICES"] = *plan.visible_devices;
  const auto visible = visible_cards(plan);
  for (const auto& card : plan.cards) {
    add_card(machine, plan, card, std::ranges::find(visible, card.uuid) != visible.end());
  }
  auto& answers = machine.cuda.answers;
  if (plan.cuda && answers.devices.empty()) answers.init = model::cuda_code::kNoDevice;
  if (plan.cuda && !plan.cuda_starts) {
    answers.init = model::cuda_code::kUnknown;
    answers.devices.clear();
  }
  return machine;
}

/// Whether a training could run on this card, from the plan alone.
bool usable(const Plan& plan, const Card& card) {
  if (!card.is_nvidia() || card.fell_off || card.other_driver || card.excluded) return false;
  if (plan.cuda && !plan.cuda_starts) return false;
  const auto visible = visible_cards(plan);
  if (std::ranges::find(visible, card.uuid) == visible.end()) return false;
  if (plan.nvml && (!card.in_nvml || card.lost || card.prohibited || card.slices == 0)) return false;
  if (plan.nvml && card.exclusive && card.has_process) return false;
  if (plan.cuda && card.kernel_fails) return false;
  const bool known = !card.capability.empty() && ((plan.nvml && card.in_nvml) || plan.cuda);
  return !known || card.capability != "6.1";
}

const Card* card_at(const Plan& plan, const std::string& bdf) {
  const auto at = std::ranges::find(plan.cards, bdf, &Card::bdf);
  return at == plan.cards.end() ? nullptr : &*at;
}

RC_GTEST_PROP(DiscreteGpuFirstTest, AUsableDiscreteGpuIsAlwaysTaken, ()) {
  const auto plan = random_plan();
  const auto selection = select_gpu(machine_of(plan));
  const auto wanted = [&](const Card& card) { return usable(plan, card) && card.is_discrete(); };
  if (std::ranges::any_of(plan.cards, wanted)) {
    RC_ASSERT(selection.selected() != nullptr);
    RC_ASSERT(selection.selected()->is_discrete);
  }
}

RC_GTEST_PROP(DiscreteGpuFirstTest, WhatIsTakenCanBeUsed, ()) {
  const auto plan = random_plan();
  const auto selection = select_gpu(machine_of(plan));
  const auto any = std::ranges::any_of(plan.cards, [&](const Card& card) { return usable(plan, card); });
  RC_ASSERT((selection.selected() != nullptr) == any);
  if (selection.selected() != nullptr) {
    const auto* card = card_at(plan, selection.selected()->bdf);
    RC_ASSERT(card != nullptr);
    RC_ASSERT(usable(plan, *card));
  }
}

RC_GTEST_PROP(DiscreteGpuFirstTest, EveryGpuIsListedOnceAndAtMostOneIsTaken, ()) {
  const auto plan = random_plan();
  const auto selection = select_gpu(machine_of(plan));
  RC_ASSERT(std::ranges::count_if(selection.gpus, &model::GpuStatus::is_selected) <= 1);
  for (const auto& card : plan.cards) {
    const auto listed = std::ranges::count(selection.gpus, card.bdf, &model::GpuStatus::bdf);
    RC_ASSERT(listed == std::max(1, plan.nvml && card.in_nvml && card.is_nvidia() ? card.slices : 0));
  }
  for (const auto& gpu : selection.gpus) RC_ASSERT(gpu.is_available || !gpu.reasons.empty());
  RC_ASSERT(!selection.reason.empty());
}

RC_GTEST_PROP(DiscreteGpuFirstTest, TheOrderOfTheListsDoesNotMatter, ()) {
  const auto plan = random_plan();
  auto machine = machine_of(plan);
  const auto before = select_gpu(machine);
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  std::ranges::shuffle(machine.hardware.gpus, random);
  std::ranges::shuffle(machine.gpus, random);
  std::ranges::shuffle(machine.nvml.devices, random);
  std::ranges::shuffle(machine.cuda.answers.devices, random);
  const auto after = select_gpu(machine);
  RC_ASSERT(before.gpus.size() == after.gpus.size());
  for (std::size_t i = 0; i < before.gpus.size(); ++i) {
    RC_ASSERT(before.gpus[i].bdf == after.gpus[i].bdf);
    RC_ASSERT(before.gpus[i].uuid == after.gpus[i].uuid);
    RC_ASSERT(before.gpus[i].is_selected == after.gpus[i].is_selected);
  }
}

}  // namespace
}  // namespace fullwatt::doctor
