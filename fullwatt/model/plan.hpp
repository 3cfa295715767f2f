#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

/// What is to be changed in a training without touching its code. Made by `tune`, applied by `run --fix`.
namespace fullwatt::model {

/// One fix with its settings; which there are, and of which kind, says the catalogue.
struct PlannedFix {
  std::string id;
  std::map<std::string, std::string> settings;
  std::optional<double> speedup;  ///< measured when the plan was made, of this fix beside the others

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("settings", self.settings);
    visit("speedup", self.speedup);
  }
  bool operator==(const PlannedFix&) const = default;
};

/// What a plan was made for. An empty text fits everything.
struct PlanTarget {
  std::string torch;   ///< minor version, such as 2.11
  std::string gpu;     ///< compute capability, such as 9.0; "cpu" without one
  std::string model;   ///< class and fingerprint of the module tree
  std::string script;  ///< fingerprint of the main script; another one only warns

  static void fields(auto& self, auto&& visit) {
    visit("torch", self.torch);
    visit("gpu", self.gpu);
    visit("model", self.model);
    visit("script", self.script);
  }
  bool operator==(const PlanTarget&) const = default;
};

struct Plan {
  static constexpr int kVersion = 1;

  PlanTarget made_for;
  std::vector<PlannedFix> fixes;  ///< in the catalogue's order

  static void fields(auto& self, auto&& visit) {
    visit("made_for", self.made_for);
    visit("fixes", self.fixes);
  }
  bool operator==(const Plan&) const = default;
};

}  // namespace fullwatt::model
