#include "fullwatt/model/finding.hpp"

#include <algorithm>
#include <utility>

namespace fullwatt::model {
namespace {

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

template <class T, std::size_t N>
std::string_view name_of(const Names<T, N>& names, T value) {
  const auto at = std::ranges::find(names, value, &std::pair<T, std::string_view>::first);
  return at == names.end() ? std::string_view{"unknown"} : at->second;
}

template <class T, std::size_t N>
std::optional<T> value_of(const Names<T, N>& names, std::string_view text) {
  const auto at = std::ranges::find(names, text, &std::pair<T, std::string_view>::second);
  return at == names.end() ? std::nullopt : std::optional(at->first);
}

constexpr Names<Layer, 5> kLayerNames{{{Layer::hardware, "hardware"},
                                       {Layer::driver, "driver"},
                                       {Layer::cuda, "cuda"},
                                       {Layer::pytorch, "pytorch"},
                                       {Layer::application, "application"}}};
constexpr Names<Severity, 4> kSeverityNames{
    {{Severity::info, "info"}, {Severity::note, "note"}, {Severity::warning, "warning"}, {Severity::error, "error"}}};
constexpr Names<Confidence, 3> kConfidenceNames{
    {{Confidence::possible, "possible"}, {Confidence::likely, "likely"}, {Confidence::certain, "certain"}}};
constexpr Names<CheckResult::Status, 4> kStatusNames{{{CheckResult::Status::passed, "passed"},
                                                      {CheckResult::Status::found, "found"},
                                                      {CheckResult::Status::skipped, "skipped"},
                                                      {CheckResult::Status::broken, "broken"}}};
constexpr Names<LayerStatus::State, 5> kStateNames{{{LayerStatus::State::works, "works"},
                                                    {LayerStatus::State::degraded, "degraded"},
                                                    {LayerStatus::State::broken, "broken"},
                                                    {LayerStatus::State::unknown, "unknown"},
                                                    {LayerStatus::State::not_applicable, "not-applicable"}}};

}  // namespace

std::string_view to_string(Layer layer) {
  return name_of(kLayerNames, layer);
}
std::optional<Layer> layer_from_string(std::string_view text) {
  return value_of(kLayerNames, text);
}
std::string_view to_string(Severity severity) {
  return name_of(kSeverityNames, severity);
}
std::optional<Severity> severity_from_string(std::string_view text) {
  return value_of(kSeverityNames, text);
}
std::string_view to_string(Confidence confidence) {
  return name_of(kConfidenceNames, confidence);
}
std::optional<Confidence> confidence_from_string(std::string_view text) {
  return value_of(kConfidenceNames, text);
}
std::string_view to_string(CheckResult::Status status) {
  return name_of(kStatusNames, status);
}
std::string_view to_string(LayerStatus::State state) {
  return name_of(kStateNames, state);
}

const Finding* Diagnosis::find(std::string_view id) const {
  const auto at = std::ranges::find(findings, id, &Finding::id);
  return at == findings.end() ? nullptr : &*at;
}

}  // namespace fullwatt::model
