# How {fmt} is used: version 9 and 10 are compiled once, in src/base/fmt.cc; the list of instances there is theirs.
# Another version is used header only, which costs every file about twice its time. Sets TERN_FMT_DEFINITIONS.
find_path(TERN_FMT_INCLUDE fmt/core.h REQUIRED)
file(STRINGS ${TERN_FMT_INCLUDE}/fmt/core.h TERN_FMT_VERSION REGEX "#define FMT_VERSION (9|10)[0-9][0-9][0-9][0-9]$")
set(TERN_FMT_DEFINITIONS)
if(NOT TERN_FMT_VERSION)
  set(TERN_FMT_DEFINITIONS FMT_HEADER_ONLY)
endif()
