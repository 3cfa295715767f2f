# What an outside CMake project finds with find_package(fullwatt): the target fullwatt::core.
include(CMakePackageConfigHelpers)

install(TARGETS fullwatt_api fullwatt_base fullwatt_batch_size fullwatt_model fullwatt_catalog fullwatt_vendor_nvml fullwatt_vendor_cuda fullwatt_doctor fullwatt_show
  EXPORT fullwattTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT fullwattTargets NAMESPACE fullwatt:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fullwatt)
install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/api/device_decision.hpp ${PROJECT_SOURCE_DIR}/fullwatt/api/gpu_diagnostic_tool.hpp ${PROJECT_SOURCE_DIR}/fullwatt/api/gpu_optimizer.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/api)
install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/model/finding.hpp ${PROJECT_SOURCE_DIR}/fullwatt/model/selection.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/model)
install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/base/reading.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/base)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fullwattConfig.cmake.in ${CMAKE_BINARY_DIR}/fullwattConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fullwatt)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/fullwattConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/fullwattConfig.cmake ${CMAKE_BINARY_DIR}/fullwattConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fullwatt)
