#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// Whose code a file is.
enum class Owner { user, torch, library, standard, fullwatt };
Owner owner_of(std::string_view file, const ProcessFact& process);

/// "file:line:function" as the recorder writes it; not known() when it is something else.
model::Site parse_site(std::string_view text);

/// The lines of the user's code, by small numbers. 0 stands for "not known".
class Sites {
 public:
  Sites(const model::TrainingProcess& process, const ProcessFacts& facts);

  /// What a stack says about its moment.
  struct Moment {
    std::uint32_t line = 0;  ///< innermost frame of the user's, else of a library's that is not PyTorch
    /// Whose code runs: the innermost frame that is not the standard library's. What PyTorch has for logging, copying
    /// and keeping a model counts as a library's: it computes no step.
    Owner running = Owner::standard;
    bool in_module = false;  ///< below a torch.nn.Module's call
  };
  const Moment& moment(std::uint32_t stack) const { return stack < moments_.size() ? moments_[stack] : nowhere_; }
  /// The line of a phase's site; 0 when it is not the user's.
  std::uint32_t line_of_text(std::uint32_t text) const { return text < text_lines_.size() ? text_lines_[text] : 0; }
  /// The same, and for a phase that did not tell its own: the one line that all phases of its kind told. Only the first
  /// step of a window tells lines.
  std::uint32_t line_of_phase(model::Phase phase, std::uint32_t text) const;
  const model::Site& site(std::uint32_t line) const { return sites_[line]; }
  std::size_t count() const { return sites_.size(); }

 private:
  std::uint32_t number_of(const model::Site& site);
  void take_phase_lines(const model::TrainingProcess& process);
  Moment examine(const std::vector<model::Site>& frames, const ProcessFact& process);

  std::vector<model::Site> sites_{model::Site{}};
  std::map<model::Site, std::uint32_t> numbers_;
  std::vector<Moment> moments_;
  std::vector<std::uint32_t> text_lines_;
  std::map<model::Phase, std::uint32_t> only_lines_;  ///< 0 for a phase with several
  Moment nowhere_;
};

}  // namespace fullwatt::explain
