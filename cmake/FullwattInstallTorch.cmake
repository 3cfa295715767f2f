# What find_package(fullwatt) offers beside fullwatt::core where LibTorch is found: the target fullwatt::torch.
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/fullwatt)

install(TARGETS fullwatt_api_torch fullwatt_engine fullwatt_engine_config fullwatt_engine_data fullwatt_engine_place fullwatt_engine_tensor_file fullwatt_vendor_cuda_module fullwatt_vendor_nvrtc
  EXPORT fullwattTorchTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT fullwattTorchTargets NAMESPACE fullwatt:: DESTINATION ${folder})
foreach(header gpu_performance_analyzer optimized_loader performance_monitor training_accelerator utilization_metrics)
  install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/api/${header}.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/api)
endforeach()
foreach(header config own_model task)
  install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/engine/${header}.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/engine)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/fullwatt/base/error.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullwatt/base)

configure_file(${PROJECT_SOURCE_DIR}/cmake/fullwattTorch.cmake.in ${CMAKE_BINARY_DIR}/fullwattTorch.cmake @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fullwattTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake DESTINATION ${folder})
