#include "fullwatt/explain/sites.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

using base::contains;

bool is_installed(std::string_view file) {
  return contains(file, "/site-packages/") || contains(file, "/dist-packages/");
}

bool is_under(std::string_view file, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const std::string& prefix) {
    return !prefix.empty() && file.starts_with(prefix) &&
           (prefix.ends_with('/') || file.size() == prefix.size() || file[prefix.size()] == '/');
  });
}

/// Inductor's code lies where its cache is told to, named by a hash: /tmp/cache/gz/cgz474njfzrgf5jd….py
bool is_inductors(std::string_view file) {
  const auto name = base::file_name(file);
  if (contains(file, "/torchinductor_")) return true;
  if (name.size() < 48 || !name.starts_with('c') || !name.ends_with(".py")) return false;
  return base::file_name(base::folder_of(file)) == name.substr(1, 2);
}

bool is_torch(std::string_view file) {
  return contains(file, "-packages/torch/") || contains(file, "-packages/triton/") || is_inductors(file);
}

/// The folder of the package that was started with -m when it is an installed one: then that is the user's code.
std::string_view own_package(std::string_view main) {
  if (!is_installed(main)) return {};
  const auto folder = main.find("-packages/") + std::string_view("-packages/").size();
  const auto end = main.find('/', folder);
  const auto name = main.substr(folder, end == std::string_view::npos ? end : end - folder);
  const bool launches = name == "accelerate" || name == "deepspeed" || name.starts_with("ipykernel") || name == "torch";
  return launches || end == std::string_view::npos ? std::string_view{} : main.substr(0, end + 1);
}

/// What PyTorch and Python have for other purposes than computing: their callers keep books there.
bool keeps_books(const model::Site& frame, Owner owner) {
  const auto name = base::file_name(frame.file);
  if (owner == Owner::standard) return name == "copy.py" && frame.function.starts_with("deepcopy");
  if (owner != Owner::torch) return false;
  return contains(frame.file, "/torch/utils/tensorboard/") || contains(frame.file, "/torch/utils/data/") ||
         frame.function == "state_dict" || frame.function == "load_state_dict" || frame.function == "__deepcopy__";
}

/// A model's or a layer's call.
bool calls_module(const model::Site& frame, Owner owner) {
  return owner == Owner::torch && contains(frame.file, "/torch/nn/modules/module.py") &&
         base::contains(frame.function, "call");
}

/// A notebook's cell, or the program itself where it has no file (python -c).
bool is_typed_in(std::string_view file, const ProcessFact& process) {
  return file.starts_with("<ipython-input") || (process.main.empty() && (file == "<string>" || file == "<stdin>"));
}

}  // namespace

Owner owner_of(std::string_view file, const ProcessFact& process) {
  if (contains(file, "/python/fullwatt/") || contains(file, "-packages/fullwatt/")) return Owner::fullwatt;
  if (is_torch(file)) return Owner::torch;
  const auto package = own_package(process.main);
  if (!package.empty() && file.starts_with(package)) return Owner::user;
  if (is_installed(file)) return Owner::library;
  const bool foreign = is_under(file, process.prefixes);
  if (foreign && contains(file, "/torch/")) return Owner::torch;
  if (file.empty()) return Owner::standard;
  if (file.starts_with('<')) return is_typed_in(file, process) ? Owner::user : Owner::standard;
  return foreign || contains(file, "/lib/python3") ? Owner::standard : Owner::user;
}

model::Site parse_site(std::string_view text) {
  const auto last = text.rfind(':');
  if (last == std::string_view::npos || last == 0) return {};
  const auto first = text.rfind(':', last - 1);
  if (first == std::string_view::npos) return {};
  const auto line = base::number<int>(text.substr(first + 1, last - first - 1));
  if (!line) return {};
  return {std::string(text.substr(0, first)), *line, std::string(text.substr(last + 1))};
}

Sites::Sites(const model::TrainingProcess& process, const ProcessFacts& facts) {
  const auto& own = facts.process;
  moments_.reserve(process.stacks.size());
  for (const auto& frames : process.stacks) moments_.push_back(examine(frames, own));
  text_lines_.assign(process.texts.size(), 0);
  for (const auto& span : process.phases) {
    if (span.site == 0 || span.site >= text_lines_.size() || text_lines_[span.site] != 0) continue;
    const auto site = parse_site(process.texts[span.site]);
    if (site.known() && owner_of(site.file, own) == Owner::user) text_lines_[span.site] = number_of(site);
  }
  take_phase_lines(process);
}

void Sites::take_phase_lines(const model::TrainingProcess& process) {
  for (const auto& span : process.phases) {
    const auto line = line_of_text(span.site);
    if (line == 0) continue;
    const auto [at, fresh] = only_lines_.try_emplace(span.phase, line);
    if (!fresh && at->second != line) at->second = 0;
  }
}

std::uint32_t Sites::line_of_phase(model::Phase phase, std::uint32_t text) const {
  if (text != 0) return line_of_text(text);
  const auto only = only_lines_.find(phase);
  return only != only_lines_.end() ? only->second : 0;
}

std::uint32_t Sites::number_of(const model::Site& site) {
  const auto [at, fresh] = numbers_.try_emplace(site, static_cast<std::uint32_t>(sites_.size()));
  if (fresh) sites_.push_back(site);
  return at->second;
}

Sites::Moment Sites::examine(const std::vector<model::Site>& frames, const ProcessFact& process) {
  Moment moment;
  const model::Site* library = nullptr;
  bool runs = false;
  for (const auto& frame : frames) {
    const auto owner = owner_of(frame.file, process);
    if (moment.line == 0 && keeps_books(frame, owner)) {
      moment.running = Owner::library;
      runs = true;
    }
    if (owner == Owner::fullwatt || owner == Owner::standard) continue;
    if (!std::exchange(runs, true)) moment.running = owner;
    if (calls_module(frame, owner)) moment.in_module = true;
    if (owner == Owner::library && library == nullptr) library = &frame;
    if (owner == Owner::user && moment.line == 0) moment.line = number_of(frame);
  }
  if (moment.line == 0 && library != nullptr) moment.line = number_of(*library);
  return moment;
}

}  // namespace fullwatt::explain
