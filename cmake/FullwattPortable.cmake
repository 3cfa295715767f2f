# Distributions differ in the version of fmt, yaml-cpp and libstdc++; what is linked in cannot be missing.
set(FULLWATT_FMT fmt::fmt-header-only)
find_library(yaml_cpp_archive NAMES libyaml-cpp.a REQUIRED)
set_target_properties(yaml-cpp PROPERTIES IMPORTED_CONFIGURATIONS "" IMPORTED_LOCATION ${yaml_cpp_archive})
add_link_options(-static-libstdc++ -static-libgcc)
