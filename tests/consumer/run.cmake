# Installs the library into a folder of its own, builds the outside project against it, and runs that on a patient.
#   cmake -DBUILD=… -DWORK=… -DSOURCE=… -DPATIENT=… -DEXPECTED=… -P run.cmake
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
must(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix)
must(${CMAKE_COMMAND} --build ${WORK}/build)
must(${WORK}/build/consumer ${PATIENT})
if(NOT output MATCHES "root cause: ${EXPECTED}\n")
  message(FATAL_ERROR "expected the root cause ${EXPECTED}:\n${output}")
endif()
message("${output}")
