#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fullwatt/base/error.hpp"

/// A training's curves and texts in a file that TensorBoard shows, also while it grows.
namespace fullwatt::engine {

/// One thread writes. A record goes to the kernel whole and at once, so that a killed training loses none. A write that
/// fails is remembered, and the training goes on without the file.
class EventFile {
 public:
  /// A new file in a folder that is there.
  static base::Result<EventFile> create(const std::string& folder);

  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&& other) noexcept;
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  const std::string& path() const { return path_; }

  /// What earlier files of the folder tell of this step and later ones is not shown any more: they are made again.
  void restart(std::uint64_t step);
  /// TensorBoard holds float32 and makes a group of the tags that begin alike up to a slash.
  void scalar(std::uint64_t step, std::string_view tag, double value);
  /// TensorBoard reads it as Markdown.
  void text(std::uint64_t step, std::string_view tag, std::string_view text);
  /// Waits until the disk has everything, so that a loss of power takes nothing either.
  void flush();

  /// Why the file ends early; the first failure.
  std::optional<base::Error> error() const { return error_; }

 private:
  EventFile(std::string path, int descriptor);
  void append(std::string_view event);
  void fail(int reason);

  std::string path_;
  int descriptor_;
  std::uint64_t bytes_ = 0;  ///< of whole records
  std::optional<base::Error> error_;
};

}  // namespace fullwatt::engine
