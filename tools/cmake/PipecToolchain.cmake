# Fast links and cached compiles where the tools are there.
find_program(PIPEC_LLD NAMES ld.lld-22 ld.lld PATHS /usr/lib/llvm-22/bin)
if(PIPEC_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(-fuse-ld=lld)
endif()
find_program(PIPEC_CCACHE ccache)
if(PIPEC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Files with precompiled headers are cached on these terms alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${PIPEC_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${PIPEC_CCACHE})
endif()

option(PIPEC_SANITIZE "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
if(PIPEC_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# pipec_unit_test(NAME sources... [HEAVY sources...] LIBS libs... [AHEAD archives...] [HEADERS mlir-tests]):
# one GoogleTest binary, registered with ctest. Its sources are not optimized, but for HEAVY ones, which compute much;
# templates that they share with AHEAD archives are taken of these.
function(pipec_unit_test name)
  cmake_parse_arguments(ARG "" "HEADERS" "HEAVY;LIBS;AHEAD" ${ARGN})
  if(BUILD_TESTING)
    if(NOT ARG_HEADERS)
      set(ARG_HEADERS tests)
    endif()
    add_executable(${name} ${ARG_UNPARSED_ARGUMENTS} ${ARG_HEAVY})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
    pipec_compile_as_test(${name})
    pipec_use_headers(${ARG_HEADERS} ${name})
    foreach(archive IN LISTS ARG_AHEAD)
      target_link_options(${name} PRIVATE
        "LINKER:--whole-archive,$<TARGET_FILE:${archive}>,--no-whole-archive")
    endforeach()
    set_source_files_properties(${ARG_HEAVY} PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/bin)
    add_test(NAME unit.${name} COMMAND ${name})
  endif()
endfunction()
