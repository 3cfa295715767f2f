# How every target of the project is built: one place for warnings, sanitizers and the folder = target rule.

add_library(fullwatt_flags INTERFACE)
target_compile_options(fullwatt_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                                                -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 see both where there is nothing (GCC bugs 105562 and 105651: std::optional, std::string operator+).
  target_compile_options(fullwatt_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
else()
  # libstdc++'s own std::stable_sort uses what it calls deprecated.
  target_compile_options(fullwatt_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(FULLWATT_WERROR)
  target_compile_options(fullwatt_flags INTERFACE -Werror)
endif()
if(FULLWATT_SANITIZE)
  target_compile_options(fullwatt_flags INTERFACE -fsanitize=${FULLWATT_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(fullwatt_flags INTERFACE -fsanitize=${FULLWATT_SANITIZE})
endif()
if(FULLWATT_FUZZ)
  target_compile_options(fullwatt_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# fullwatt_library(model SOURCES … DEPENDS …): folder fullwatt/model becomes target fullwatt_model, alias fullwatt::model.
function(fullwatt_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(fullwatt_${name} STATIC ${arg_SOURCES})
  add_library(fullwatt::${name} ALIAS fullwatt_${name})
  target_include_directories(fullwatt_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(fullwatt_${name} PUBLIC ${arg_DEPENDS} PRIVATE $<BUILD_INTERFACE:fullwatt_flags> ${arg_PRIVATE})
  if(FULLWATT_PRECOMPILE AND FULLWATT_FMT IN_LIST arg_PRIVATE)
    target_precompile_headers(fullwatt_${name} REUSE_FROM fullwatt_headers)
  endif()
endfunction()
