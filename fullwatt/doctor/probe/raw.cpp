#include "fullwatt/doctor/probe/raw.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/yaml.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

namespace fs = std::filesystem;
using base::Error;
using model::Json;

constexpr int kMaxBases = 4;

constexpr std::array kErrorNames{
    std::pair{std::string_view{"ENOENT"}, ENOENT}, std::pair{std::string_view{"EACCES"}, EACCES},
    std::pair{std::string_view{"EPERM"}, EPERM},   std::pair{std::string_view{"ENXIO"}, ENXIO},
    std::pair{std::string_view{"ENODEV"}, ENODEV}, std::pair{std::string_view{"EIO"}, EIO},
    std::pair{std::string_view{"EBUSY"}, EBUSY},
};

[[noreturn]] void wrong(const std::string& what) {
  throw model::json_detail::Mismatch(what);
}

int error_number(const Json& json, const std::string& at) {
  const auto name = json.is_string() ? json.get<std::string>() : std::string{};
  const auto found = std::ranges::find(kErrorNames, name, &std::pair<std::string_view, int>::first);
  if (found != kErrorNames.end()) return found->second;
  if (const auto code = base::number<int>(name); code && *code >= 0 && *code < 4096) return *code;
  wrong(at + ": expected an error such as EACCES");
}

std::string error_name(int code) {
  const auto found = std::ranges::find(kErrorNames, code, &std::pair<std::string_view, int>::second);
  return found != kErrorNames.end() ? std::string(found->first) : std::to_string(code);
}

std::string from_hex(const std::string& hex, const std::string& at) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    const auto byte = base::number<unsigned>(std::string_view(hex).substr(i, 2), 16);
    if (!byte) wrong(at + ": broken hex");
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

std::string text_of(const Json& json, const std::string& at) {
  if (!json.is_string()) wrong(at + ": expected text");
  return json.get<std::string>();
}

template <class T>
T number_of(const Json& json, const std::string& at, int radix = 10) {
  const auto value = base::number<T>(text_of(json, at), radix);
  if (!value) wrong(at + ": expected a number");
  return *value;
}

/// One property of a recorded path, such as `link: …` or `mode: 0660`.
void apply_property(base::TreeEntry& entry, const std::string& key, const Json& value, const std::string& at) {
  const auto info = [&]() -> base::FileInfo& {
    if (!entry.info) entry.info = base::FileInfo{};
    return *entry.info;
  };
  if (key == "text") {
    entry.text = text_of(value, at);
  } else if (key == "hex") {
    entry.text = from_hex(text_of(value, at), at);
  } else if (key == "link") {
    entry.link = text_of(value, at);
  } else if (key == "device") {
    const auto numbers = text_of(value, at);
    const auto colon = numbers.find(':');
    const auto major = base::number<std::uint32_t>(std::string_view(numbers).substr(0, colon));
    const auto minor = colon == std::string::npos
                           ? std::nullopt
                           : base::number<std::uint32_t>(std::string_view(numbers).substr(colon + 1));
    if (!major || !minor) wrong(at + ": expected MAJOR:MINOR");
    info().kind = base::FileInfo::Kind::device;
    info().major = *major;
    info().minor = *minor;
  } else if (key == "mode") {
    info().mode = number_of<std::uint32_t>(value, at, 8);
  } else if (key == "uid") {
    info().uid = number_of<std::uint32_t>(value, at);
  } else if (key == "gid") {
    info().gid = number_of<std::uint32_t>(value, at);
  } else if (key == "size") {
    info().size = number_of<std::uint64_t>(value, at);
  } else if (key == "kind") {
    if (text_of(value, at) != "directory") wrong(at + ": only 'directory' can be said");
    info().kind = base::FileInfo::Kind::directory;
  } else if (key == "open") {
    entry.open_error = error_number(value, at);
  } else if (key == "read") {
    entry.text = base::absent_from_errno(error_number(value, at));
  } else if (key == "error") {
    const auto why = base::absent_from_errno(error_number(value, at));
    entry.text = why;
    entry.info = why;
  } else {
    wrong(at + ": no such property of a file");
  }
}

base::TreeEntry decode_entry(const Json& json, const std::string& at) {
  base::TreeEntry entry;
  if (json.is_string()) {
    entry.text = json.get<std::string>();
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) apply_property(entry, key, value, at + "." + key);
  } else {
    wrong(at + ": expected the file's text or its properties");
  }
  return entry;
}

bool is_text(const std::string& bytes) {
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
  };
  if (std::ranges::any_of(bytes, control)) return false;
  return base::printable(bytes, bytes.size() + 1).find("\xEF\xBF\xBD") == std::string::npos;
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

void encode_info(Json& json, const base::FileInfo& info, bool has_content) {
  if (info.kind == base::FileInfo::Kind::directory) {
    json["kind"] = "directory";
    return;
  }
  if (info.kind == base::FileInfo::Kind::device) {
    json["device"] = fmt::format("{}:{}", info.major, info.minor);
    json["mode"] = fmt::format("{:04o}", info.mode);
    json["uid"] = std::to_string(info.uid);
    json["gid"] = std::to_string(info.gid);
  } else if (!has_content) {
    json["size"] = std::to_string(info.size);
  }
}

/// Null when nothing worth recording is known: a path that was looked for and is not there.
Json encode_entry(const base::TreeEntry& entry) {
  auto json = Json::object();
  if (entry.text)
    json[is_text(*entry.text) ? "text" : "hex"] = is_text(*entry.text) ? *entry.text : to_hex(*entry.text);
  if (entry.link) json["link"] = *entry.link;
  if (entry.info) encode_info(json, *entry.info, entry.text.has_value() || entry.link.has_value());
  if (entry.open_error && entry.info) json["open"] = error_name(*entry.open_error);
  const auto denied = [](const auto& reading) {
    return !reading && reading.error().reason != base::Absent::not_asked &&
           reading.error().reason != base::Absent::not_there;
  };
  if (entry.info && !entry.text && entry.text.error().code != 0) json["read"] = error_name(entry.text.error().code);
  if (json.empty() && denied(entry.text)) json["error"] = error_name(entry.text.error().code);
  if (json.empty() && denied(entry.info)) json["error"] = error_name(entry.info.error().code);
  if (json.empty()) return nullptr;
  if (json.size() == 1 && json.contains("text")) return json["text"];
  return json;
}

/// Lays `over` on `under`. Mappings merge, null removes, a list in `under` is patched by a mapping of its indices, and
/// a reading that is absent replaces what was there.
void overlay(Json& under, const Json& over) {
  if (!over.is_object() || over.contains("absent")) {
    under = over;
    return;
  }
  const bool patches_list = under.is_array();
  if (!under.is_object() && !patches_list) under = Json::object();
  for (const auto& [key, value] : over.items()) {
    if (patches_list) {
      const auto index = base::number<std::size_t>(key);
      if (!index || *index >= under.size()) wrong("'" + key + "': the base has no element with this number");
      overlay(under[*index], value);
    } else if (value.is_null()) {
      under.erase(key);
    } else {
      overlay(under[key], value);
    }
  }
}

void overlay_files(Json& under, const Json& over) {
  if (!over.is_object()) wrong("files: expected a mapping of paths");
  for (const auto& [path, entry] : over.items()) {
    if (!path.starts_with('/')) wrong("files: '" + base::printable(path, 120) + "' is not an absolute path");
    if (!entry.is_null()) {
      under[path] = entry;
      continue;
    }
    std::vector<std::string> gone;
    for (const auto& [known, unused] : under.items()) {
      if (known == path || known.starts_with(path + "/")) gone.push_back(known);
    }
    for (const auto& known : gone) under.erase(known);
  }
}

Json overlaid(Json under, const Json& over) {
  for (const auto& [key, value] : over.items()) {
    if (key == "files") {
      if (!under.contains("files")) under["files"] = Json::object();
      overlay_files(under["files"], value);
    } else if (key == "about" || key == "expect" || key == "schema") {
      under[key] = value;
    } else {
      overlay(under[key], value);
    }
  }
  return under;
}

void check_schema(const Json& json) {
  if (!json.is_object()) wrong("the document is not a mapping");
  const auto version = json.contains("schema") ? json["schema"] : Json(nullptr);
  if (!version.is_number_integer()) wrong("schema: the version of the format is missing");
  if (version != RawMachine::kSchemaVersion) {
    wrong(fmt::format("schema: version {} is not known; this fullwatt reads version {}", model::dump(version),
                      RawMachine::kSchemaVersion));
  }
  static const std::set<std::string> kKeys{"schema",      "about", "base", "expect", "files", "system",
                                           "environment", "nvml",  "cuda", "torch",  "target"};
  for (const auto& [key, unused] : json.items()) {
    if (!kKeys.contains(key)) wrong(base::printable(key, 80) + ": no such field");
  }
}

template <class T>
T section(const Json& json, const std::string& key) {
  return json.contains(key) ? model::json_detail::decode<T>(json[key], key) : T{};
}

Target decode_target(const Json& json) {
  Target target;
  if (!json.contains("target")) return target;
  for (const auto& [key, value] : json["target"].items()) {
    if (key == "pid") {
      target.pid = model::json_detail::decode<int>(value, "target.pid");
    } else if (key == "python") {
      target.python = model::json_detail::decode<std::string>(value, "target.python");
    } else if (key == "wake") {
      target.wake = model::json_detail::decode<bool>(value, "target.wake");
    } else if (key == "log") {
      target.log.emplace();
      const auto text = model::json_detail::decode<std::string>(value, "target.log");
      for (auto line : base::lines(text)) target.log->emplace_back(line);
    } else {
      wrong("target." + key + ": no such field");
    }
  }
  return target;
}

RawMachine decode_raw(const Json& json) {
  RawMachine raw;
  raw.about = section<std::string>(json, "about");
  raw.expect = section<Expectation>(json, "expect");
  raw.system = section<model::System>(json, "system");
  raw.environment = section<base::Environment>(json, "environment");
  raw.nvml = section<model::Nvml>(json, "nvml");
  raw.cuda = section<model::CudaAnswers>(json, "cuda");
  raw.torch = section<model::TorchAnswers>(json, "torch");
  raw.target = decode_target(json);
  if (json.contains("files")) {
    for (const auto& [path, entry] : json["files"].items()) {
      raw.files[base::normal_path(path)] = decode_entry(entry, "files." + path);
    }
  }
  return raw;
}

/// The text of DIR/machine.yaml. A link that leads out of DIR is refused: a saved machine is somebody else's data.
base::Result<std::string> read_machine_file(const fs::path& folder) {
  const auto file = folder / "machine.yaml";
  std::error_code error;
  const auto status = fs::symlink_status(file, error);
  if (error || !fs::exists(status)) {
    return base::fail(Error::Kind::bad_input,
                      fmt::format("{}: there is no machine.yaml in this folder", folder.string()),
                      "Name a folder that 'fullwatt doctor --save DIR' wrote.");
  }
  if (!fs::is_regular_file(status)) {
    return base::fail(Error::Kind::bad_input, fmt::format("{} is not a plain file", file.string()),
                      "Links are not followed; copy the file itself into the folder.");
  }
  base::RealFiles files;
  auto text = files.read(file.string(), 33UL * 1024 * 1024);
  if (!text) return base::fail(Error::Kind::bad_input, fmt::format("{}: {}", file.string(), text.error().detail));
  return *text;
}

bool is_plain_name(const std::string& name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 80 && std::ranges::all_of(name, allowed);
}

Json load_json(const fs::path& folder, int depth) {
  if (depth > kMaxBases) wrong("base: more than four bases on top of each other");
  auto text = read_machine_file(folder);
  if (!text) throw std::runtime_error(text.error().message);
  auto json = yaml_to_json(*text);
  if (!json) throw std::runtime_error(json.error().message);
  check_schema(*json);
  if (!json->contains("base")) return overlaid(Json::object(), *json);
  const auto name = model::json_detail::decode<std::string>((*json)["base"], "base");
  if (!is_plain_name(name)) wrong("base: a base is named by its folder alone, in a-z, 0-9 and '-'");
  json->erase("base");
  return overlaid(load_json(folder.parent_path() / name, depth + 1), *json);
}

std::unexpected<Error> unreadable(const std::string& where, const std::string& why) {
  return base::fail(
      Error::Kind::bad_input, fmt::format("{}: {}", where, base::printable(why, 300)),
      "A saved machine is written by 'fullwatt doctor --save DIR'; its form is described in docs/patients.md.");
}

}  // namespace

base::Result<RawMachine> load_raw(const std::string& folder) {
  try {
    std::error_code error;
    const auto real = fs::canonical(folder, error);
    if (error || !fs::is_directory(real)) return unreadable(folder, "this is not a folder");
    return decode_raw(load_json(real, 0));
  } catch (const std::exception& problem) {
    return unreadable(folder, problem.what());
  }
}

base::Result<RawMachine> parse_raw(const std::string& yaml) {
  auto json = yaml_to_json(yaml);
  if (!json) return std::unexpected(json.error());
  try {
    check_schema(*json);
    json->erase("base");
    return decode_raw(overlaid(Json::object(), *json));
  } catch (const std::exception& problem) {
    return unreadable("machine.yaml", problem.what());
  }
}

std::string raw_to_yaml(const RawMachine& raw) {
  Json json{{"schema", RawMachine::kSchemaVersion}};
  json["about"] = raw.about;
  if (!raw.expect.root_cause.empty() || !raw.expect.findings.empty()) json["expect"] = model::to_json(raw.expect);
  auto target = Json::object();
  if (!raw.target.python.empty()) target["python"] = raw.target.python;
  if (raw.target.pid != 0) target["pid"] = raw.target.pid;
  if (raw.target.wake) target["wake"] = true;
  if (raw.target.log) target["log"] = base::join(*raw.target.log, "\n");
  if (!target.empty()) json["target"] = target;
  json["environment"] = model::to_json(raw.environment);
  json["system"] = model::to_json(raw.system);
  json["nvml"] = model::to_json(raw.nvml);
  json["cuda"] = model::to_json(raw.cuda);
  json["torch"] = model::to_json(raw.torch);
  json["files"] = Json::object();
  for (const auto& [path, entry] : raw.files) {
    if (auto encoded = encode_entry(entry); !encoded.is_null()) json["files"][path] = std::move(encoded);
  }
  return json_to_yaml(json);
}

base::Result<void> save_raw(const RawMachine& raw, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const auto file = (fs::path(folder) / "machine.yaml").string();
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return base::fail(Error::Kind::bad_input, fmt::format("cannot write {}: {}", file, std::strerror(errno)),
                      "Name a new or empty folder that you may write to.");
  }
  const auto text = raw_to_yaml(raw);
  std::size_t written = 0;
  while (written < text.size()) {
    const auto got = ::write(fd, text.data() + written, text.size() - written);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    written += static_cast<std::size_t>(got);
  }
  const bool complete = ::close(fd) == 0 && written == text.size();
  if (complete) return {};
  ::unlink(file.c_str());
  return base::fail(Error::Kind::unavailable, fmt::format("writing {} failed: {}", file, std::strerror(errno)),
                    "Check the free space on that disk.");
}

}  // namespace fullwatt::doctor
