# rust/textkit: tokenizers, minijinja and llguidance behind one C header, as one static library.
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
set(TERN_TEXTKIT_LIB ${TERN_TEXTKIT_DIR}/release/libtextkit.a)
file(GLOB_RECURSE textkit_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/textkit/src/*.rs
     ${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.lock)
add_custom_command(
  OUTPUT ${TERN_TEXTKIT_LIB}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${TERN_TEXTKIT_DIR} ${CARGO} build --release --locked --quiet
          --manifest-path ${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E touch ${TERN_TEXTKIT_LIB}
  DEPENDS ${textkit_sources}
  COMMENT "Building rust/textkit" VERBATIM)
add_custom_target(textkit_build DEPENDS ${TERN_TEXTKIT_LIB})
add_library(textkit INTERFACE)
add_dependencies(textkit textkit_build)
target_include_directories(textkit INTERFACE ${CMAKE_SOURCE_DIR}/rust/textkit/include)
target_link_libraries(textkit INTERFACE ${TERN_TEXTKIT_LIB} dl m)

# Its tests, compiled like the library so that dependencies are compiled once; tools/run_tests.py runs them.
if(TERN_TESTS)
  file(GLOB textkit_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/textkit/tests/*.rs)
  set(stamp ${CMAKE_BINARY_DIR}/test_textkit.stamp)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${TERN_TEXTKIT_DIR} ${CARGO} test --release --locked --quiet --tests --no-run
            --manifest-path ${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.toml
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${TERN_TEXTKIT_LIB} ${textkit_sources} ${textkit_tests}
    COMMENT "Building the tests of rust/textkit" VERBATIM)
  add_custom_target(test_textkit ALL DEPENDS ${stamp})
endif()
