#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/run.hpp"

/// What python/fullwatt/source_facts.py read in the user's files, typed.
namespace fullwatt::explain {

struct SourceFunction {
  std::string name;
  std::string qualified;  ///< Trainer.validate
  int line = 0;
  int end_line = 0;
  std::vector<std::string> decorators;
};

struct SourceCall {
  std::string name;  ///< torch.compile, self.model.to
  int line = 0;
  std::string function;
  std::map<std::string, std::string> keywords;  ///< literals only, others empty
  bool in_loop = false;
};

struct SourceAssignment {
  std::string target;  ///< torch.backends.cudnn.benchmark, os.environ[OMP_NUM_THREADS], BATCH_SIZE
  std::string value;
  int line = 0;
  std::string function;
};

/// A setting that is compared with a literal.
struct SourceComparison {
  std::string what;
  std::string key;  ///< the setting's name: amp of config['train']['amp']
  std::string literal;
  std::string type;  ///< of the literal: str, int, float, bool, NoneType
  int line = 0;
  std::string function;
  bool converted = false;  ///< str(…), .lower(): the type does not matter then
};

/// A `for` loop that stands in no other one but training loops.
struct SourceLoop {
  int line = 0;
  int end_line = 0;
  std::string function;
  int depth = 1;
  int ranges = 0;                   ///< of the loops, those over range or enumerate
  std::vector<std::string> writes;  ///< what it fills element by element
  bool trains = false;              ///< it is the training loop
};

struct SourceUse {
  std::string what;  ///< item, cpu, numpy, print …
  int line = 0;
  bool in_loop = false;
};

struct SourceFile {
  std::string path;
  std::string error;  ///< why it could not be read; empty when it could
  std::vector<SourceFunction> functions;
  std::vector<SourceCall> calls;
  std::vector<SourceAssignment> assignments;
  std::vector<SourceComparison> comparisons;
  std::vector<std::string> truths;  ///< settings asked for their truth
  std::vector<SourceLoop> loops;
  std::vector<SourceUse> uses;
  std::vector<SourceCall> loaders;
  std::vector<std::string> fields;  ///< of the samples that its data sets give
  std::vector<std::string> references;

  /// The innermost function that the line stands in; null on module level.
  const SourceFunction* function_at(int line) const;
};

struct SourceFacts {
  std::vector<SourceFile> files;

  /// By its path; a copy that lies elsewhere is known by its name, where only one has it.
  const SourceFile* file(std::string_view path) const;
  /// Whether a name is used anywhere but where it is defined.
  bool referenced(std::string_view name) const;
};

/// Where the user's code makes a setting: the last assignment to, or call of, one of these names. `cudnn.benchmark` is
/// also found as torch.backends.cudnn.benchmark.
model::Site set_at(const SourceFacts& source, std::initializer_list<std::string_view> names);

/// Empty when the file is absent or broken.
SourceFacts parse_source_facts(const std::string& json);

/// The text of a line of the user's code, without its indentation; empty when it was not kept.
std::string source_line(const model::Run& run, const model::Site& site);

}  // namespace fullwatt::explain
