# The transport of KServe over gRPC, a shared object beside the program, and the number that tells both sides that they
# are of one build: over the text of the header between them.
set(TERN_KSERVE_HEADER ${CMAKE_SOURCE_DIR}/src/serve/kserve/transport.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TERN_KSERVE_HEADER})
file(SHA256 ${TERN_KSERVE_HEADER} kserve_hash)
string(SUBSTRING ${kserve_hash} 0 16 TERN_KSERVE_HASH)

# Source properties hold in one directory: every target that compiles the file says so.
function(tern_kserve_interface)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/serve/kserve/interface.cc
                              PROPERTIES COMPILE_DEFINITIONS TERN_KSERVE_INTERFACE=0x${TERN_KSERVE_HASH}ull)
endfunction()
tern_kserve_interface()
