# Headers that nearly every file includes, read once per kind of target. A file that forgets one of them still compiles with
# these, so what people install and what is fuzzed is built without.
set(common_headers <algorithm> <array> <chrono> <cmath> <cstdint> <fstream> <functional> <map> <memory> <optional> <set> <span>
  <string> <string_view> <vector>)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers.cpp CONTENT "int main() {}\n")

add_library(fullwatt_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cpp)
target_link_libraries(fullwatt_headers PRIVATE fullwatt_flags ${FULLWATT_FMT})
target_precompile_headers(fullwatt_headers PRIVATE ${common_headers} <fmt/format.h>)
