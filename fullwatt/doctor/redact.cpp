#include "fullwatt/doctor/redact.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::doctor {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Replaces `from` where it stands as a word of its own, so that a user called "in" does not eat every "in".
void replace_word(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const bool starts = at == 0 || !is_word(text[at - 1]) || !is_word(from.front());
    const auto end = at + from.size();
    const bool ends = end == text.size() || !is_word(text[end]) || !is_word(from.back());
    if (starts && ends) {
      text.replace(at, from.size(), to);
      at += to.size();
    } else {
      at += from.size();
    }
  }
}

/// The length of a dotted IPv4 address at `at`; 0 when there is none.
std::size_t ipv4_length(std::string_view text, std::size_t at) {
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '.')) return 0;
  std::size_t end = at;
  for (int part = 0; part < 4; ++part) {
    std::size_t digits = 0;
    while (end < text.size() && digits < 4 && std::isdigit(static_cast<unsigned char>(text[end])) != 0) {
      ++digits;
      ++end;
    }
    if (digits == 0 || digits > 3) return 0;
    if (part == 3) break;
    if (end >= text.size() || text[end] != '.') return 0;
    ++end;
  }
  // A version such as 580.95.05.1 has the same form; an address has no part above 255 and ends here.
  const bool continues = end < text.size() && (is_word(text[end]) || text[end] == '.' || text[end] == '-');
  for (auto part : base::split(text.substr(at, end - at), '.')) {
    if (base::number<int>(part).value_or(999) > 255) return 0;
  }
  return continues ? 0 : end - at;
}

std::string without_addresses(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto length = ipv4_length(text, at);
    const bool harmless = length > 0 && (std::string_view(text).substr(at, length) == "127.0.0.1" ||
                                         std::string_view(text).substr(at, length) == "0.0.0.0");
    if (length > 0 && !harmless) {
      out += "192.0.2.1";
      at += length;
    } else {
      out += text[at++];
    }
  }
  return out;
}

/// Whole UUIDs of GPUs and MIG slices in a text: the driver's files tell them even where its libraries do not answer.
std::vector<std::string> uuids_in(std::string_view text) {
  constexpr std::size_t kLength = 4 + 36;
  std::vector<std::string> found;
  for (std::size_t at = 0; at + kLength <= text.size(); ++at) {
    const auto part = text.substr(at, kLength);
    const auto digit = [](unsigned char c) { return std::isxdigit(c) != 0 || c == '-'; };
    if ((part.starts_with("GPU-") || part.starts_with("MIG-")) && std::ranges::all_of(part.substr(4), digit))
      found.emplace_back(part);
  }
  return found;
}

/// Where a value that starts here ends: at its closing quote, else at the next character that ends a word.
std::size_t value_end(std::string_view text, std::size_t at) {
  constexpr std::string_view kEnds(" \"'\n,;\0", 7);
  const bool escaped = at + 1 < text.size() && text[at] == '\\' && (text[at + 1] == '"' || text[at + 1] == '\'');
  if (escaped) return std::min(text.find(text.substr(at, 2), at + 2), text.size());
  if (at < text.size() && (text[at] == '"' || text[at] == '\''))
    return std::min(text.find(text[at], at + 1), text.size());
  return std::min(text.find_first_of(kEnds, at), text.size());
}

/// The value after token=, "secret": , password=, Authorization: Bearer and their like.
std::string without_secrets(const std::string& text) {
  constexpr std::array kNames{"token", "secret", "password", "passwd", "api_key", "apikey", "api-key", "authorization"};
  const auto lower = base::lower(text);
  std::string out;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '=' && text[at] != ':') continue;
    auto before = std::string_view(lower).substr(0, at);
    while (!before.empty() && std::string_view("\"'\\ ").find(before.back()) != std::string_view::npos)
      before.remove_suffix(1);
    if (std::ranges::none_of(kNames, [&](const char* name) { return before.ends_with(name); })) continue;
    auto start = std::min(text.find_first_not_of(' ', at + 1), text.size());
    if (std::string_view(lower).substr(start).starts_with("bearer ")) start += 7;
    const auto end = value_end(text, start);
    if (end <= start) continue;
    const bool quoted = text[start] == '"' || text[start] == '\'';
    out += text.substr(copied, start + (quoted ? 1 : 0) - copied) + "<removed>";
    copied = end;
    at = end - 1;
  }
  return out + text.substr(copied);
}

}  // namespace

void Redactor::forget(const std::string& text, const std::string& replacement) {
  if (text.size() >= 2) known_.emplace(text, replacement);
}

Redactor::Redactor(const RawMachine& raw) {
  if (const auto home = raw.environment.find("HOME"); home != raw.environment.end() && home->second.size() > 1) {
    const auto user = std::string(base::file_name(home->second));
    if (home->second.starts_with("/home/")) {
      forget(home->second, "/home/user");
      forget(user, "user");
    }
  }
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0 && std::string_view(host.data()) != "localhost")
    forget(host.data(), "host");
  int number = 0;
  const auto forget_uuid = [&](const std::string& uuid) {
    if (uuid.starts_with("GPU-") || uuid.starts_with("MIG-"))
      forget(uuid, fmt::format("{}00000000-0000-0000-0000-{:012}", uuid.substr(0, 4), ++number));
  };
  for (const auto& device : raw.nvml.devices) {
    forget_uuid(device.uuid.value_or(""));
    for (const auto& slice : device.mig_slices) forget_uuid(slice.uuid);
  }
  for (const auto& device : raw.cuda.devices) forget_uuid(device.uuid);
  for (const auto& device : raw.torch.devices) forget_uuid(device.uuid);
  for (const auto& [path, entry] : raw.files) {
    for (const auto& uuid : uuids_in(entry.text.value_or(""))) forget_uuid(uuid);
  }
}

RawMachine Redactor::operator()(RawMachine raw) const {
  for (auto& [path, entry] : raw.files) {
    if (entry.text) entry.text = (*this)(*entry.text);
  }
  return raw;
}

std::string Redactor::operator()(const std::string& text) const {
  auto out = text;
  for (const auto& [from, to] : known_) replace_word(out, from, to);
  return without_secrets(without_addresses(out));
}

}  // namespace fullwatt::doctor
