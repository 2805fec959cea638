# The page at /: the parts under src/serve/page/ui as one file in the program.
file(GLOB page_parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/serve/page/ui/*)
set(page_file ${CMAKE_BINARY_DIR}/page/page_file.cc)
add_custom_command(
  OUTPUT ${page_file}
  COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/embed_page.py ${CMAKE_SOURCE_DIR}/src/serve/page/ui ${page_file}
  DEPENDS ${page_parts} ${CMAKE_SOURCE_DIR}/tools/embed_page.py
  COMMENT "Embedding the page" VERBATIM)
target_sources(tern_serve PRIVATE ${page_file})
