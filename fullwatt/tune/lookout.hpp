#pragma once

#include <set>
#include <string>
#include <vector>

namespace fullwatt::tune {

/// Sees what processes behind a fence (fullwatt/tune/fence.hpp) are about to write outside of it, before they do: by
/// the kernel's notices of their system calls (seccomp, Linux 5.5). It forbids nothing by itself.
///
/// What would fail without a fence, too, is let through to fail. So is what programs try and do without: opening a file
/// to read and write, after which many open it to read; and writing into the user's cache.
class Lookout {
 public:
  /// `open` are the folders that the fence leaves open, `caches` are the user's.
  Lookout(std::vector<std::string> open, std::vector<std::string> caches);
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  /// Has this process watched from now on, with all that it starts. Gives what `listen` needs, or -1 where the kernel
  /// offers no notices.
  static int watch_me();
  void listen(int descriptor) { descriptor_ = descriptor; }
  void stop();
  /// Readable when there is something to answer; -1 when nobody is watched.
  int descriptor() const { return descriptor_; }

  /// Answers the next notice. False when the process must not go on; it waits to be ended then.
  bool answer();
  /// What it was about to write.
  const std::string& forbidden() const { return forbidden_; }
  /// What was let through to fail only because of the fence; some of it.
  const std::set<std::string>& refused() const { return refused_; }

 private:
  std::vector<std::string> open_;
  std::vector<std::string> caches_;
  int descriptor_ = -1;
  std::string forbidden_;
  std::set<std::string> refused_;
};

}  // namespace fullwatt::tune
