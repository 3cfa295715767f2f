# LibTorch as a PyTorch wheel carries it: the target LibTorch::LibTorch. `find_package(Torch)` would want a whole CUDA toolkit.
# FULLWATT_TORCH_PYTHON names the interpreter whose torch is meant.
if(NOT FULLWATT_TORCH_PYTHON)
  foreach(candidate "$ENV{FULLWATT_TEST_PYTHON}" "$ENV{VIRTUAL_ENV}/bin/python" "$ENV{CONDA_PREFIX}/bin/python" "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    if(EXISTS "${candidate}")
      set(FULLWATT_TORCH_PYTHON "${candidate}" CACHE FILEPATH "Interpreter whose PyTorch the engine is built for")
      break()
    endif()
  endforeach()
endif()

if(FULLWATT_TORCH_PYTHON AND NOT LibTorch_ROOT_FOLDER)
  execute_process(
    COMMAND ${FULLWATT_TORCH_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(LibTorch_ROOT_FOLDER "${found}" CACHE PATH "Folder of PyTorch, with lib and include" FORCE)  # over the empty one of a time before torch was there
endif()

find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS ${LibTorch_ROOT_FOLDER}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS ${LibTorch_ROOT_FOLDER}/lib NO_DEFAULT_PATH)
find_library(LibTorch_LIBRARY torch PATHS ${LibTorch_ROOT_FOLDER}/lib NO_DEFAULT_PATH)
find_path(LibTorch_INCLUDE_DIR torch/torch.h PATHS ${LibTorch_ROOT_FOLDER}/include/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS ${LibTorch_ROOT_FOLDER}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS ${LibTorch_ROOT_FOLDER}/lib NO_DEFAULT_PATH)
# The wheels of CUDA that PyTorch's own depends on, or a toolkit.
find_path(LibTorch_CUDA_INCLUDE_DIR crt/host_defines.h
  PATHS ${LibTorch_ROOT_FOLDER}/../nvidia/cu13/include ${LibTorch_ROOT_FOLDER}/../nvidia/cuda_runtime/include /usr/local/cuda/include NO_DEFAULT_PATH)
if(EXISTS "${LibTorch_ROOT_FOLDER}/version.py")
  file(STRINGS "${LibTorch_ROOT_FOLDER}/version.py" line REGEX "^__version__ = ")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_LIBRARY LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION)
if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_ROOT_FOLDER}/include ${LibTorch_INCLUDE_DIR})
  # libtorch.so does nothing but load those for CUDA, which nothing refers to.
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY} -Wl,--no-as-needed ${LibTorch_LIBRARY} -Wl,--as-needed)
endif()
# For what calls CUDA itself; missing where PyTorch is built without it.
if(LibTorch_FOUND AND LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY AND LibTorch_CUDA_INCLUDE_DIR AND NOT TARGET LibTorch::Cuda)
  add_library(LibTorch::Cuda INTERFACE IMPORTED)
  target_include_directories(LibTorch::Cuda SYSTEM INTERFACE ${LibTorch_CUDA_INCLUDE_DIR})
  target_link_libraries(LibTorch::Cuda INTERFACE LibTorch::LibTorch ${LibTorch_CUDA_LIBRARY} ${LibTorch_C10_CUDA_LIBRARY})
endif()

# NCCL: its header from the package beside torch alone, since the layout of torch's objects follows its version; nv/target is in nvidia-cuda-cccl.
find_path(LibTorch_NCCL_INCLUDE_DIR nccl.h PATHS ${LibTorch_ROOT_FOLDER}/../nvidia/nccl/include NO_DEFAULT_PATH)
find_path(LibTorch_CCCL_INCLUDE_DIR nv/target PATHS ${LibTorch_CUDA_INCLUDE_DIR} ${LibTorch_CUDA_INCLUDE_DIR}/cccl NO_DEFAULT_PATH)
if(TARGET LibTorch::Cuda AND LibTorch_NCCL_INCLUDE_DIR AND LibTorch_CCCL_INCLUDE_DIR AND NOT TARGET LibTorch::Nccl)
  add_library(LibTorch::Nccl INTERFACE IMPORTED)
  target_include_directories(LibTorch::Nccl SYSTEM INTERFACE ${LibTorch_NCCL_INCLUDE_DIR} ${LibTorch_CCCL_INCLUDE_DIR})
  target_link_libraries(LibTorch::Nccl INTERFACE LibTorch::Cuda)
endif()
