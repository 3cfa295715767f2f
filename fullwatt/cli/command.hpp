#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "fullwatt/base/error.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::cli {

/// Exit codes of every command.
constexpr int kOk = 0;
constexpr int kFindings = 1;     ///< it ran and found something at or above --fail-on
constexpr int kUsage = 2;        ///< bad arguments or bad input
constexpr int kNotExamined = 3;  ///< what was asked could not be examined

/// Flags that every command takes.
struct Common {
  show::StyleFlags style;
};

/// The style for standard output as it is now.
show::Style output_style(const Common& common);
/// The same for standard error, where `run` writes.
show::Style error_style(const Common& common);

/// Prints an error the way all of them look: what, why, what to do. Returns the code to exit with.
int report(const base::Error& error, int code = kUsage);

/// Writes to standard output; a reader that went away is not an error worth a message.
void print(const std::string& text);

/// Each adds its command; `result` is set to the exit code when it ran.
void add_doctor(CLI::App& app, const Common& common, int& result);
void add_select(CLI::App& app, const Common& common, int& result);
void add_run(CLI::App& app, const std::vector<std::string>& user_command, const Common& common, int& result);
void add_tune(CLI::App& app, const std::vector<std::string>& user_command, const Common& common, int& result);
void add_train(CLI::App& app, const std::vector<std::string>& user_command, int& result);
void add_report(CLI::App& app, const Common& common, int& result);
void add_explain(CLI::App& app, const Common& common, int& result);

/// The hidden command `fullwatt __trial`: runs a command where nothing that it writes or starts is left behind.
int run_trial_child(const std::vector<std::string>& arguments);

/// The whole program.
int run(int argc, char** argv);

}  // namespace fullwatt::cli
