#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

constexpr int kMaxIncludes = 64;

void add(std::vector<SearchFolder>& folders, std::string_view path, const std::string& origin) {
  const auto normal = base::normal_path(path);
  if (std::ranges::find(folders, normal, &SearchFolder::path) == folders.end()) folders.push_back({normal, origin});
}

void read_conf(base::Files& files, const std::string& path, std::vector<SearchFolder>& folders, int& budget);

/// `include /etc/ld.so.conf.d/*.conf`: the only pattern that distributions use.
void include_folder(base::Files& files, std::string_view pattern, std::vector<SearchFolder>& folders, int& budget) {
  if (!pattern.ends_with("/*.conf")) return;
  const std::string folder(pattern.substr(0, pattern.size() - 7));
  const auto names = files.list(folder);
  if (!names) return;
  for (const auto& name : *names) {
    if (name.ends_with(".conf")) read_conf(files, folder + "/" + name, folders, budget);
  }
}

void read_conf(base::Files& files, const std::string& path, std::vector<SearchFolder>& folders, int& budget) {
  if (--budget < 0) return;
  const auto text = files.read(path);
  if (!text) return;
  for (auto line : base::lines(*text)) {
    line = base::trim(line);
    if (line.starts_with("include ")) {
      include_folder(files, base::trim(line.substr(8)), folders, budget);
    } else if (line.starts_with('/')) {
      add(folders, line, "ld.so.conf");
    }
  }
}

}  // namespace

std::vector<SearchFolder> loader_folders(base::Files& files, const base::Environment& environment) {
  std::vector<SearchFolder> folders;
  if (const auto path = environment.find("LD_LIBRARY_PATH"); path != environment.end()) {
    for (auto folder : base::split(path->second, ':')) {
      if (folder.starts_with('/')) add(folders, folder, "LD_LIBRARY_PATH");
    }
  }
  int budget = kMaxIncludes;
  read_conf(files, "/etc/ld.so.conf", folders, budget);
  constexpr std::array kDefaults{"/lib/x86_64-linux-gnu",
                                 "/usr/lib/x86_64-linux-gnu",
                                 "/lib/aarch64-linux-gnu",
                                 "/usr/lib/aarch64-linux-gnu",
                                 "/lib64",
                                 "/usr/lib64",
                                 "/lib",
                                 "/usr/lib"};
  for (const auto* folder : kDefaults) add(folders, folder, "default");
  return folders;
}

}  // namespace fullwatt::doctor
