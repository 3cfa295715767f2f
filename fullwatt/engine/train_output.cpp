#include "fullwatt/engine/train_output.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace fullwatt::engine {
namespace {

/// As 1:02:03.
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string in_force(const Start& start, const std::string& name, const std::string& configured) {
  const auto other = std::ranges::find(start.otherwise, name, &Otherwise::name);
  if (other == start.otherwise.end()) return configured;
  return other->why.empty() ? other->value : fmt::format("{} ({})", other->value, other->why);
}

/// Leaves what was told of the steps that are done; those after them are made, and told, once more.
void cut_behind(const std::filesystem::path& file, std::uint64_t step) {
  const auto shorter = std::filesystem::path(file).concat(".new");
  {
    std::ifstream in(file);
    std::ofstream out(shorter);
    for (std::string line; std::getline(in, line);) {
      const auto told = nlohmann::json::parse(line, nullptr, false);
      if (told.is_object() && told.value("step", std::uint64_t{0}) <= step) out << line << '\n';
    }
    if (!out.flush()) return;  // a line that is told twice is better than one that is lost
  }
  std::error_code failure;
  std::filesystem::rename(shorter, file, failure);
}

}  // namespace

TrainOutput::TrainOutput(const Config& config, std::FILE* terminal)
    : config_(config), terminal_(terminal), is_live_(isatty(fileno(terminal)) != 0) {}

TrainListener TrainOutput::listener() {
  return {.started = [this](const Start& now) { start(now); },
          .progressed = [this](const Progress& now) { progress(now); },
          .noted = [this](const std::string& what) { say(what); },
          .saved =
              [this](const std::string& path) {
                if (events_) events_->flush();
                if (!is_live_) say("saved " + path);
              }};
}

void TrainOutput::say(const std::string& line) {
  fmt::print(terminal_, "{}{}\n", has_line_ ? "\r\033[K" : "", line);
  has_line_ = false;
}

void TrainOutput::tell_settings(const Start& start) {
  std::string table = "| setting | configured | in force |\n|---|---|---|\n";
  say(fmt::format("  {:<36} {:<20} {}", "setting", "configured", "in force"));
  for (const auto& [name, value] : settings_of(config_)) {
    const auto now = in_force(start, name, value);
    say(fmt::format("{} {:<36} {:<20} {}", now == value ? ' ' : '*', name, value, now));
    table += fmt::format("| {} | {} | {} |\n", name, value, now);
  }
  if (events_) events_->text(first_step_, "settings", table);
}

void TrainOutput::start(const Start& start) {
  steps_ = start.steps_per_epoch * static_cast<std::uint64_t>(config_.train.epochs);
  first_step_ = start.first_step;
  begun_ = std::chrono::steady_clock::now();
  const std::filesystem::path folder(config_.output.folder);
  const auto metrics = folder / "metrics.jsonl";
  if (!start.resumed.empty()) cut_behind(metrics, first_step_);
  metrics_.open(metrics, std::ios::out | (start.resumed.empty() ? std::ios::trunc : std::ios::app));
  if (config_.output.tensorboard) {
    auto events = EventFile::create(folder.string());
    if (events) {
      events_ = *std::move(events);
      events_->restart(start.resumed.empty() ? 0 : first_step_ + 1);
    } else {
      say("no file for TensorBoard: " + events.error().message + "; " + events.error().remedy);
    }
  }
  tell_settings(start);
  say(fmt::format("{} parameters, {} samples, {} steps an epoch of {} samples, on {} in {}{}", start.parameters,
                  start.samples, start.steps_per_epoch, start.effective_batch, start.device, start.precision,
                  start.processes > 1 ? fmt::format(", {} processes", start.processes) : ""));
  if (!start.resumed.empty()) say(fmt::format("goes on from {} (--anew begins again)", start.resumed));
}

std::string TrainOutput::bar(const Progress& now) const {
  constexpr std::size_t kWidth = 20;
  const double done = steps_ > 0 ? static_cast<double>(now.step) / static_cast<double>(steps_) : 0;
  const auto full = std::min(kWidth, static_cast<std::size_t>(done * kWidth));
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  const auto made = std::max<std::uint64_t>(1, now.step - std::min(now.step, first_step_));
  const double left = passed * static_cast<double>(steps_ - std::min(steps_, now.step)) / static_cast<double>(made);
  return fmt::format("[{}{}] {:3.0f} %, {} left  ", std::string(full, '#'), std::string(kWidth - full, '.'), 100 * done,
                     clock_text(left));
}

void TrainOutput::progress(const Progress& now) {
  const auto line = fmt::format("epoch {} step {}: loss {:.6g}, {:.0f} samples/s", now.epoch, now.step, now.loss,
                                now.samples_per_second);
  if (is_live_) {
    fmt::print(terminal_, "\r{}{}\033[K", bar(now), line);
    std::fflush(terminal_);
    has_line_ = true;
  } else {
    say(line);
  }
  metrics_ << fmt::format(R"({{"epoch":{},"step":{},"loss":{:.17g},"samples_per_second":{:.6g},"lr":{:.9g}}})",
                          now.epoch, now.step, now.loss, now.samples_per_second, now.rate)
           << std::endl;
  if (metrics_.is_open() && !metrics_) {
    say("metrics.jsonl ends early: is the disk full? The training goes on without it.");
    metrics_.close();
  }
  if (!events_) return;
  events_->scalar(now.step, "train/loss", now.loss);
  events_->scalar(now.step, "train/lr", now.rate);
  events_->scalar(now.step, "speed/samples_per_second", now.samples_per_second);
  if (const auto error = events_->error()) {
    say(error->message + "; " + error->remedy);
    events_.reset();
  }
}

}  // namespace fullwatt::engine
