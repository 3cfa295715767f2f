#pragma once

#include <string>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/cli/tuner.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::cli {

/// Where one tuning keeps its trials while it runs, and its answer afterwards: a folder beside those of the runs. A
/// tuning that was cut off has no answer; the next one with the same command, options and program goes on in its
/// folder.
class TuneFolder {
 public:
  static base::Result<TuneFolder> open(const base::Environment& environment, const TuneOptions& options);
  TuneFolder(TuneFolder&& other) noexcept;
  TuneFolder& operator=(TuneFolder&&) = delete;
  ~TuneFolder();

  const std::string& path() const { return path_; }
  /// Trials that an earlier tuning has left.
  int kept() const { return kept_; }
  /// The file for which an earlier tuning does not go on; empty when there is none.
  const std::string& changed() const { return changed_; }

  /// Writes report.html; and, unless the tuning may go on later, tuning.json, and takes the trials away if they are not
  /// to be kept.
  base::Result<void> finish(const model::Tuning& tuning, bool keep_trials, const show::Style& style);

 private:
  TuneFolder(std::string path, int lock);

  std::string path_;
  int lock_ = -1;  ///< held while a tuning is at work here
  int kept_ = 0;
  std::string changed_;
};

}  // namespace fullwatt::cli
