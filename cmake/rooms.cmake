# tern_room(NAME DEPS...): a static library of src/NAME/**.cc and, where src/NAME/tests/*_test.cc exist, a GoogleTest
# program test_NAME.
include(${CMAKE_CURRENT_LIST_DIR}/isa.cmake)

# Rooms without loops over numbers: with TERN_UNITY, which is to be quick, they are compiled with -O2.
set(TERN_COLD_ROOMS app bench cli client answer fetch json serve)
# Their tests compute: -O1 would cost more than it saves.
set(TERN_NUMERIC_TESTS device image kernels model ops sample video vision)

# With TERN_UNITY: the target's sources are compiled several at a time, TERN_UNITY lines at most (tools/unity_groups.py
# divides them). Sources with options of their own stay alone, and so does every file of the kernels when they are optimized:
# what a hot loop becomes must not depend on its neighbours.
function(tern_unity target)
  set(sources ${ARGN})
  string(REPLACE ";" "|" isas "${TERN_ISAS}")
  list(FILTER sources EXCLUDE REGEX "_(${isas})\\.cc$")
  foreach(source ${sources})
    get_source_file_property(own ${source} COMPILE_DEFINITIONS)
    if(own)
      list(REMOVE_ITEM sources ${source})
    endif()
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/unity_groups.py)
  execute_process(COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/unity_groups.py ${TERN_UNITY} ${sources}
                  OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${lines}")
  # Written here, not by CMake's UNITY_BUILD, which includes absolute paths: with these another checkout finds the same
  # objects in ccache.
  get_target_property(all ${target} SOURCES)
  set(groups)
  foreach(line ${lines})
    string(REGEX MATCH "^(g[0-9]+) (.*)$" line "${line}")
    set(group ${CMAKE_MATCH_1})
    set(source ${CMAKE_MATCH_2})
    list(REMOVE_ITEM all ${source})
    list(APPEND groups ${group})
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${source})
    string(APPEND text_${group} "#include \"${path}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    set(file ${CMAKE_BINARY_DIR}/unity/${target}_${group}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${group}}" @ONLY)  # as it was, if it says the same
    list(APPEND all ${file})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${all}")
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # every source looks like a header to it then
endfunction()

# TERN_SOURCE_DIR of tests: the checkout, out of the command line, so that another checkout finds the same objects in ccache.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/source_dir/source_dir.cc
     CONTENT "extern const char* const kTernSourceDir;\nconst char* const kTernSourceDir = \"${CMAKE_SOURCE_DIR}\";\n" @ONLY)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/source_dir/source_dir.h
     CONTENT "#pragma once\nextern const char* const kTernSourceDir;\n#define TERN_SOURCE_DIR kTernSourceDir\n" @ONLY)
add_library(tern_source_dir STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/source_dir/source_dir.cc)
target_compile_options(tern_source_dir INTERFACE -include source_dir.h)
target_include_directories(tern_source_dir INTERFACE ${CMAKE_BINARY_DIR}/source_dir)

function(tern_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "/src/${name}/(.*/)?(tests|main)/")
  list(FILTER tests INCLUDE REGEX "/src/${name}/(.*/)?tests/")
  list(APPEND tests ${TERN_TEST_SOURCES_${name}})
  list(LENGTH sources count)
  set(target tern_${name})
  if(count GREATER 0)
    add_library(${target} STATIC ${sources})
    set(visibility PUBLIC)
    if(TERN_UNITY AND NOT (name STREQUAL kernels AND CMAKE_BUILD_TYPE STREQUAL Release))
      tern_unity(${target} ${sources})
    endif()
    if(TERN_UNITY AND name IN_LIST TERN_COLD_ROOMS)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    tern_isa_options(${sources})
  else()
    add_library(${target} INTERFACE)
    set(visibility INTERFACE)
  endif()
  target_link_libraries(${target} ${visibility} tern_flags)
  foreach(dep ${ARGN})
    target_link_libraries(${target} ${visibility} tern_${dep})
  endforeach()
  if(TERN_LIBS_${name})
    target_link_libraries(${target} ${visibility} ${TERN_LIBS_${name}})
  endif()
  if(TERN_TESTS AND tests)
    find_package(GTest REQUIRED)
    add_executable(test_${name} ${tests})
    target_link_libraries(test_${name} PRIVATE ${target} ${TERN_TEST_LIBS_${name}} GTest::gtest GTest::gmock GTest::gtest_main)
    if(TERN_UNITY)
      tern_unity(test_${name} ${tests})
    endif()
    if(TERN_UNITY AND NOT name IN_LIST TERN_NUMERIC_TESTS)
      target_compile_options(test_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    target_link_libraries(test_${name} PRIVATE tern_source_dir)
    add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
endfunction()

function(tern_rooms_from_table path)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path})
  file(STRINGS ${CMAKE_SOURCE_DIR}/${path} lines)
  foreach(line ${lines})
    if(line MATCHES "^([a-z]+):(.*)$")
      set(name ${CMAKE_MATCH_1})
      string(STRIP "${CMAKE_MATCH_2}" deps)
      separate_arguments(deps)
      list(FILTER deps EXCLUDE REGEX "/")  # inner rooms are compiled into their room
      if(NOT EXISTS ${CMAKE_SOURCE_DIR}/src/${name}/CMakeLists.txt)
        tern_room(${name} ${deps})
      endif()
    endif()
  endforeach()
endfunction()

# test_cuda: which kernels the CUDA side chooses. These files of src/cuda are pure functions and need no CUDA; the rest is
# built apart.
function(tern_cuda_choices)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/choice*.cc ${CMAKE_SOURCE_DIR}/src/cuda/fits*.cc
       ${CMAKE_SOURCE_DIR}/src/cuda/codes_pack*.cc
       ${CMAKE_SOURCE_DIR}/src/cuda/tests/choice/*.cc)
  find_package(GTest REQUIRED)
  add_executable(test_cuda ${sources})
  target_link_libraries(test_cuda PRIVATE tern_device GTest::gtest GTest::gtest_main)
  add_test(NAME cuda COMMAND test_cuda WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

# Third-party libraries by room.
find_package(Boost 1.81 REQUIRED)
set(TERN_LIBS_image jpeg png webp webpdemux gif tiff)
find_package(CURL REQUIRED)  # headers only: src/fetch loads it when it is needed
find_package(Freetype REQUIRED)
set(TERN_LIBS_fetch ${CMAKE_DL_LIBS})
find_package(OpenSSL 3 REQUIRED)  # headers only, as of CURL: src/tls loads it
set(TERN_LIBS_tls ${CMAKE_DL_LIBS})
set(TERN_LIBS_video Freetype::Freetype)
set(TERN_LIBS_json Boost::boost)
set(TERN_LIBS_serve Boost::boost)
set(TERN_LIBS_app Boost::boost yaml-cpp)
set(TERN_LIBS_client Boost::boost)
set(TERN_LIBS_content textkit)
# What a room's tests take from the tests of a room below.
set(TERN_TEST_SOURCES_vision ${CMAKE_SOURCE_DIR}/src/model/tests/weight_files.cc)

# What stands for NVIDIA's library of figures in the tests of `device`.
function(tern_fake_nvml)
  add_library(tern_fake_nvml MODULE ${CMAKE_SOURCE_DIR}/tests/tools/fake_nvml.cc)
  add_dependencies(test_device tern_fake_nvml)
  target_compile_definitions(test_device PRIVATE TERN_FAKE_NVML="$<TARGET_FILE:tern_fake_nvml>")
endfunction()
