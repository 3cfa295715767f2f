// GPU memory: allocated too often, or too much of it.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

/// Calls that allocate or free device memory, of a step.
double allocations(const Case& examined) {
  double count = 0;
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.category == "allocator") count += use.count;
  }
  return count;
}

/// The line that gives all memory back: the costliest one when it says so, else one in a loop.
model::Site emptied_at(const Case& examined) {
  for (const auto& group : lines_of_cause(examined, cause::kAllocator)) {
    if (mentions(source_line(examined.evidence.run, group.site), {"empty_cache("})) return group.site;
  }
  for (const auto& file : examined.source.files) {
    for (const auto& use : file.uses) {
      if (use.what != "empty_cache" || !use.in_loop) continue;
      const auto* function = file.function_at(use.line);
      return {file.path, use.line, function == nullptr ? std::string() : function->name};
    }
  }
  return {};
}

bool caching_off(const Case& examined) {
  return examined.facts().variable("PYTORCH_NO_CUDA_MEMORY_CACHING").has_value();
}

Match priced(const Case& examined) {
  Match match;
  match.costs(examined.charged(cause::kAllocator), examined.gain(Change::without(cause::kAllocator)),
              examined.step_ms());
  match.fact("count", number_text(allocations(examined)));
  match.saw("allocations and frees", number_text(allocations(examined)) + " a step", "CUPTI");
  return match;
}

Matches churn(const Case& examined) {
  const bool explained = caching_off(examined) || emptied_at(examined).known();
  if (examined.charged(cause::kAllocator) <= 0 || explained) return {};
  const auto lines = lines_of_cause(examined, cause::kAllocator);
  return {priced(examined).near({lines.empty() ? model::Site{} : lines.front().site})};
}

Matches empty_cache(const Case& examined) {
  const auto site = emptied_at(examined);
  if (!site.known() || examined.charged(cause::kAllocator) <= 0) return {};
  return {priced(examined).at(site)};
}

Matches caching(const Case& examined) {
  if (!caching_off(examined) || !examined.on_gpu()) return {};
  const double idle = examined.charged(cause::kAllocator) + examined.charged(cause::kSyncDrain);
  Match match;
  match.costs(idle, idle * (1 - keeps("allocator-caching-off")), examined.step_ms());
  return {match.saw("PYTORCH_NO_CUDA_MEMORY_CACHING", "set", "environment")};
}

Matches retries(const Case& examined) {
  const auto& memory = examined.facts().memory;
  if (!memory || memory->retries < 1) return {};
  Match match;
  match.fact("count", number_text(memory->retries))
      .fact("value", number_text(static_cast<double>(memory->peak_reserved_bytes) / kGiB));
  match.fact("limit", number_text(memory_bytes(examined.gpu).value_or(0) / kGiB));
  return {match.saw("num_alloc_retries", number_text(memory->retries), "allocator")};
}

Matches fragmentation(const Case& examined) {
  const auto& memory = examined.facts().memory;
  if (!memory || memory->oom < 1 || memory->peak_reserved_bytes == 0) return {};
  const double unused =
      1 - static_cast<double>(memory->peak_allocated_bytes) / static_cast<double>(memory->peak_reserved_bytes);
  if (unused < 0.3) return {};
  Match match;
  return {match.saw("out of memory", number_text(memory->oom) + " times", "allocator")
              .saw("reserved, never in use", percent(unused) + " %", "allocator")};
}

constexpr std::array kRules{
    Rule{"allocator-churn", churn},
    Rule{"empty-cache-in-loop", empty_cache},
    Rule{"allocator-caching-off", caching},
    Rule{"allocator-retries", retries},
    Rule{"vram-fragmentation", fragmentation},
};

}  // namespace

std::span<const Rule> memory_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
