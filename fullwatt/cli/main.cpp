#include "fullwatt/cli/command.hpp"

int main(int argc, char** argv) {
  return fullwatt::cli::run(argc, argv);
}
