#include "fullwatt/cli/command.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/child.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::cli {
namespace {

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  return columns != nullptr ? base::number<int>(columns).value_or(0) : 0;
}

/// CLI11's own codes start at 100; ours are few and documented.
int parse_failed(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kOk : kUsage;
  fmt::print(stderr, "fullwatt: {}\nTry 'fullwatt --help'.\n", error.what());
  return kUsage;
}

}  // namespace

show::Style output_style(const Common& common) {
  return show::style_for(common.style, base::current_environment(), ::isatty(STDOUT_FILENO) == 1, terminal_columns());
}

int report(const base::Error& error, int code) {
  fmt::print(stderr, "fullwatt: {}\n", base::printable(error.message, 1000));
  if (!error.remedy.empty()) fmt::print(stderr, "{}\n", base::printable(error.remedy, 1000));
  return code;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

int run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  if (argc == 3 && std::string_view(argv[1]) == "__probe") return doctor::run_probe_child(argv[2]);
  CLI::App app{"Finds out why a GPU idles in training, fixes it, and proves it.", "fullwatt"};
  app.set_version_flag("--version", std::string(show::kVersion));
  app.footer("Exit codes: 0 fine, 1 findings, 2 usage or bad input, 3 could not examine.");
  app.require_subcommand(0, 1);
  Common common;
  app.add_option("--color", common.style.color, "When to colour: auto, always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--lang", common.style.language, "Language: en, zh (default: the locale's)")
      ->check(CLI::IsMember({"en", "zh"}));
  app.fallthrough();
  int result = kOk;
  add_doctor(app, common, result);
  add_select(app, common, result);
  add_explain(app, common, result);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) print(app.help());
  } catch (const CLI::ParseError& error) {
    result = parse_failed(app, error);
  } catch (const std::exception& error) {
    result = report({base::Error::Kind::unavailable, error.what(),
                     "This should not happen; please report it with 'fullwatt doctor --bundle FILE'."},
                    kNotExamined);
  }
  // A probe that hangs may have left a thread behind; it must not keep the program.
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(result);
}

}  // namespace fullwatt::cli
