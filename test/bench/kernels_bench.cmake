# kernels_bench and team_bench: built on request when Google Benchmark is there.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(kernels_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/test/bench/kernels_bench.cpp)
  target_link_libraries(kernels_bench PRIVATE pipec_kernels benchmark::benchmark)
  add_executable(team_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/test/bench/team_bench.cpp)
  target_link_libraries(team_bench PRIVATE pipec_kernels benchmark::benchmark ${CMAKE_DL_LIBS})
  # oneDNN's product beside ours, for comparison only.
  find_path(PIPEC_DNNL_INCLUDE dnnl.h)
  find_library(PIPEC_DNNL dnnl)
  if(PIPEC_DNNL_INCLUDE AND PIPEC_DNNL)
    target_compile_definitions(kernels_bench PRIVATE PIPEC_BENCH_DNNL)
    target_include_directories(kernels_bench SYSTEM PRIVATE ${PIPEC_DNNL_INCLUDE})
    target_link_libraries(kernels_bench PRIVATE ${PIPEC_DNNL})
  endif()
endif()

# The kernels as a shared object, for kernels_vs_torch.py.
add_library(kernels_shared MODULE EXCLUDE_FROM_ALL
  ${CMAKE_SOURCE_DIR}/test/bench/kernels_shared.cpp)
target_link_libraries(kernels_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,pipec_kernels>")
