#include "fullwatt/cli/command.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/child.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::cli {
namespace {

int terminal_columns(int stream) {
  winsize size{};
  if (::ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  return columns != nullptr ? base::number<int>(columns).value_or(0) : 0;
}

std::string shown(const std::vector<std::string>& words) {
  return base::printable(base::shell_line(words));
}

/// The command that a mistyped word most likely means; empty when none is near.
std::string nearest_command(const CLI::App& app, std::string_view word) {
  const bool is_file = word.find_first_of("./") != std::string_view::npos;
  if (is_file) return {};
  std::vector<std::string_view> names;
  for (const auto* known : app.get_subcommands({})) names.push_back(known->get_name());
  return std::string(base::nearest(word, names));
}

/// The option that the first unknown one most likely means; empty when none is near.
std::string nearest_option(const CLI::App& app, const CLI::App& command, const std::vector<std::string>& unknown) {
  const auto option = std::ranges::find_if(unknown, [](const auto& word) { return word.starts_with("--"); });
  if (option == unknown.end()) return {};
  std::vector<std::string_view> names;
  for (const auto* part : {&app, &command}) {
    for (const auto* known : part->get_options()) std::ranges::copy(known->get_lnames(), std::back_inserter(names));
  }
  const auto near = base::nearest(std::string_view(*option).substr(2, option->find('=') - 2), names);
  return near.empty() ? std::string() : "--" + std::string(near);
}

/// What was most likely meant, as a line; empty when nothing is near.
std::string meant(const CLI::App& app, const CLI::App& command, const std::vector<std::string>& unknown) {
  const bool names_command = &command == &app && !unknown.front().starts_with('-');
  const auto near = names_command ? nearest_command(app, unknown.front()) : nearest_option(app, command, unknown);
  if (!near.empty()) return fmt::format("Did you mean '{}'?\n", near);
  return names_command ? fmt::format("To watch a program: fullwatt run -- {}\n", shown(unknown)) : std::string();
}

/// CLI11's own codes start at 100; ours are few and documented.
int parse_failed(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kOk : kUsage;
  const auto given = app.get_subcommands();
  const auto& command = given.empty() ? app : *given.front();
  const auto unknown = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || unknown.empty()) {
    fmt::print(stderr, "fullwatt: {}\n", base::printable(error.what()));
  } else {
    fmt::print(stderr, "fullwatt: not expected: {}\n{}", shown(unknown), meant(app, command, unknown));
  }
  fmt::print(stderr, "Try 'fullwatt{} --help'.\n", given.empty() ? "" : " " + command.get_name());
  return kUsage;
}

/// Whether an option of the program, or of a command that takes another one, takes the argument that follows it.
bool takes_value(const CLI::App& app, const std::string& argument) {
  for (const CLI::App* part :
       std::initializer_list<const CLI::App*>{&app, app.get_subcommand("run"), app.get_subcommand("tune")}) {
    const auto* option = part->get_option_no_throw(argument);
    if (option != nullptr) return option->get_items_expected_min() > 0;
  }
  return false;
}

/// Takes the user's command out of the arguments of `run` and `tune`: all after "--", else all from the first one that
/// is no option of ours. What it holds is not ours to parse; nor is anything that stands after `train`.
std::vector<std::string> take_user_command(const CLI::App& app, std::vector<std::string>& arguments) {
  bool run = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    const bool dashes = argument == "--";
    if (!run && argument == "train") {
      const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      std::vector<std::string> command(begin, arguments.end());
      arguments.erase(begin, arguments.end());
      return command;
    }
    if (run && (dashes || !argument.starts_with('-'))) {
      const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i);
      std::vector<std::string> command(begin + (dashes ? 1 : 0), arguments.end());
      arguments.erase(begin, arguments.end());
      return command;
    }
    if (takes_value(app, argument)) {
      ++i;
    } else if (!argument.starts_with('-')) {
      if (argument != "run" && argument != "tune") break;
      run = true;
    }
  }
  return {};
}

}  // namespace

show::Style output_style(const Common& common) {
  return show::style_for(common.style, base::current_environment(), ::isatty(STDOUT_FILENO) == 1,
                         terminal_columns(STDOUT_FILENO));
}

show::Style error_style(const Common& common) {
  return show::style_for(common.style, base::current_environment(), ::isatty(STDERR_FILENO) == 1,
                         terminal_columns(STDERR_FILENO));
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
  if (argc > 1 && std::string_view(argv[1]) == "__trial") return run_trial_child({argv + 2, argv + argc});
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
  std::vector<std::string> user_command;
  add_run(app, user_command, common, result);
  add_tune(app, user_command, common, result);
  add_train(app, user_command, result);
  add_report(app, common, result);
  add_explain(app, common, result);
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    user_command = take_user_command(app, arguments);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(arguments);
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
