# schedules_exact: built on request, for schedules_published.py --exact.
add_executable(schedules_exact EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/test/bench/schedules_exact.cpp)
target_link_libraries(schedules_exact PRIVATE pipec_schedule)
set_target_properties(schedules_exact PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/bin)
