#include "fullwatt/show/select.hpp"

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::show {
namespace {

std::string memory_text(const model::GpuStatus& gpu) {
  if (!gpu.memory_total_bytes) return {};
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024 * 1024); };
  if (!gpu.memory_free_bytes) return fmt::format("{:.1f} GiB", gib(*gpu.memory_total_bytes));
  return fmt::format("{:.1f} of {:.1f} GiB free", gib(*gpu.memory_free_bytes), gib(*gpu.memory_total_bytes));
}

void gpu_lines(std::string& out, const model::GpuStatus& gpu, const Style& style) {
  const auto mark = gpu.is_selected ? paint(style, Ink::green, style.unicode ? "✓" : "[ok]")
                                    : paint(style, Ink::dim, style.unicode ? "–" : "[-]");
  auto facts = fmt::format("{}{}", gpu.is_discrete ? "discrete" : "integrated",
                           gpu.device_id >= 0 ? fmt::format(", NVML index {}", gpu.device_id) : "");
  if (!gpu.compute_capability.empty()) facts += ", compute capability " + base::printable(gpu.compute_capability, 20);
  if (const auto memory = memory_text(gpu); !memory.empty()) facts += ", " + memory;
  out += fmt::format("{} {}  {}\n", mark, paint(style, Ink::bold, base::printable(gpu.device_name, 80)),
                     paint(style, Ink::dim, base::printable(gpu.bdf, 40)));
  out += fmt::format("    {}\n", facts);
  if (!gpu.uuid.empty()) out += fmt::format("    {}\n", base::printable(gpu.uuid, 80));
  for (const auto& reason : gpu.reasons) out += fmt::format("    {}\n", base::printable(reason, 200));
}

}  // namespace

std::string select_text(const model::Selection& selection, const Style& style) {
  std::string out;
  for (const auto& gpu : selection.gpus) gpu_lines(out, gpu, style);
  if (!out.empty()) out += "\n";
  out += base::printable(selection.reason, 400) + "\n";
  if (selection.selected() != nullptr)
    out += paint(style, Ink::dim, "For this shell: eval \"$(fullwatt select --export)\"") + "\n";
  return out;
}

model::Json select_json(const model::Selection& selection) {
  model::Json json{{"schema_version", model::Selection::kSchemaVersion}};
  const auto* gpu = selection.selected();
  json["selected"] = gpu == nullptr ? model::Json(nullptr) : model::Json(gpu->uuid);
  json.update(model::to_json(selection));
  return json;
}

}  // namespace fullwatt::show
