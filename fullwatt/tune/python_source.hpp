#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Small changes of Python source text, made only where they are certain to mean what they should.
namespace fullwatt::tune {

/// Gives the call of `callee` that begins on a line (counted from 1) the argument `keyword=value`, in the place of the
/// one it has. Nothing where there is no such call or more than one, where it takes arguments from a `**` dictionary,
/// or where it says the same already.
std::optional<std::string> with_argument(const std::string& source, int line, std::string_view callee,
                                         std::string_view keyword, std::string_view value);

/// What the call of `callee` that begins on a line is given for a keyword, as it is written; nothing where there is no
/// such call or argument.
std::optional<std::string> argument_of(const std::string& source, int line, std::string_view callee,
                                       std::string_view keyword);

/// Puts statements below the imports at the top of a file. Nothing where torch is not imported there.
std::optional<std::string> below_imports(const std::string& source, std::string_view statements);

/// In a line that sets the attribute named so to another value by a plain assignment: that value replaced.
std::optional<std::string> with_assignment(const std::string& source, int line, std::string_view attribute,
                                           std::string_view value);

/// The difference of two texts as `diff -u` writes it; empty when there is none.
std::string unified_diff(const std::string& name, const std::string& before, const std::string& after);

}  // namespace fullwatt::tune
