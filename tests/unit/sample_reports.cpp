// Writes the reports of the sample runs into a folder, to be looked at and to be held against the schema:
// sample_reports FOLDER

#include <fstream>

#include "tests/support/sample_explanation.hpp"

#include "fullwatt/show/run_html.hpp"
#include "fullwatt/show/run_json.hpp"
#include "fullwatt/show/run_markdown.hpp"
#include "fullwatt/show/run_text.hpp"

namespace {

using fullwatt::catalog::Language;

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void write_all(const std::string& path, const fullwatt::model::Explanation& explanation, Language language) {
  namespace show = fullwatt::show;
  const auto sources = fullwatt::tests::sample_sources();
  show::Style style{.color = true, .unicode = true, .width = 100, .language = language};
  write(path + ".txt", show::run_text(explanation, style));
  write(path + "-verbose.txt", show::run_text(explanation, style, {.verbose = true}));
  write(path + ".json", fullwatt::model::dump(show::run_json(explanation, language), 2) + "\n");
  write(path + ".html", show::run_html(explanation, sources, language));
  write(path + ".md", show::run_markdown(explanation, language));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  namespace tests = fullwatt::tests;
  write_all(folder + "/gpu", tests::sample_explanation(), Language::en);
  write_all(folder + "/gpu-zh", tests::sample_explanation(), Language::zh);
  write_all(folder + "/cpu", tests::sample_cpu_explanation(), Language::en);
  write_all(folder + "/no-steps", tests::sample_without_steps(), Language::en);
  return 0;
}
