# Headers that most files of a kind read, compiled once for all of them: half of a build's time
# otherwise. Files include what they use all the same; -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows it.
#
# pipec_headers(KIND [LIBS libs...] [DEPS tablegen-targets...]): compiles headers/KIND.h.
function(pipec_headers kind)
  cmake_parse_arguments(ARG "" "" "LIBS;DEPS" ${ARGN})
  set(holder pipec_headers_${kind})
  add_library(${holder} OBJECT ${CMAKE_SOURCE_DIR}/tools/cmake/headers/holder.cpp)
  target_link_libraries(${holder} PRIVATE ${ARG_LIBS})
  target_precompile_headers(${holder} PRIVATE ${CMAKE_SOURCE_DIR}/tools/cmake/headers/${kind}.h)
  if(ARG_DEPS)
    add_dependencies(${holder} ${ARG_DEPS})
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # The same bytes in every build, which a compile cache needs.
    target_compile_options(${holder} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  if(kind MATCHES "tests$")
    pipec_compile_as_test(${holder})
  endif()
endfunction()

# pipec_use_headers(KIND targets...): with the options of headers/KIND.h, as all that read them have.
function(pipec_use_headers kind)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM pipec_headers_${kind})
  endforeach()
endfunction()

# GoogleTest's macros take as long to optimize as the rest to compile.
function(pipec_compile_as_test target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE -O0)
endfunction()
