# kernels_generated: speed of generated kernels; not part of the tests.
add_executable(kernels_generated EXCLUDE_FROM_ALL
  ${CMAKE_SOURCE_DIR}/test/bench/kernels_generated.cpp
  ${CMAKE_SOURCE_DIR}/test/unit/target/DeviceEmulator.cpp ${CMAKE_SOURCE_DIR}/test/unit/target/Fibers.cpp
  ${CMAKE_SOURCE_DIR}/test/unit/target/StageRunner.cpp
  ${CMAKE_SOURCE_DIR}/test/unit/target/StageText.cpp)
target_link_libraries(kernels_generated PRIVATE PipecTarget PipecNNEval MLIRParser GTest::gtest)
target_link_options(kernels_generated PRIVATE
  "LINKER:--whole-archive,$<TARGET_FILE:pipec_kernels>,--no-whole-archive")
set_target_properties(kernels_generated PROPERTIES ENABLE_EXPORTS ON)
