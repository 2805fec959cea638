# The program that decodes videos for the server, one process a video (src/video/README.md). It alone is linked against
# FFmpeg, and with nothing of ours: no sanitizer and no room, because it runs under an address-space limit and a
# system-call filter that neither would survive.
find_package(PkgConfig REQUIRED)
pkg_check_modules(FFMPEG REQUIRED IMPORTED_TARGET libavformat libavcodec libavutil libswscale)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)

file(GLOB video_decoder_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/video/main/*.cc)
add_executable(tern-video-decoder ${video_decoder_sources})
target_include_directories(tern-video-decoder PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(tern-video-decoder PRIVATE -Wall -Wextra -Wshadow -fstack-protector-strong)
target_link_options(tern-video-decoder PRIVATE -Wl,-z,relro,-z,now)
if(TERN_WERROR)
  target_compile_options(tern-video-decoder PRIVATE -Werror)
endif()
target_link_libraries(tern-video-decoder PRIVATE PkgConfig::FFMPEG PkgConfig::SECCOMP)

if(TARGET test_video)
  add_dependencies(test_video tern-video-decoder)
  target_compile_definitions(test_video PRIVATE TERN_VIDEO_DECODER="$<TARGET_FILE:tern-video-decoder>")
endif()

if(TARGET test_video)
  add_executable(tern-fake-video-decoder tests/tools/fake_video_decoder.cc)
  target_include_directories(tern-fake-video-decoder PRIVATE ${CMAKE_SOURCE_DIR}/src)
  add_dependencies(test_video tern-fake-video-decoder)
  target_compile_definitions(test_video PRIVATE TERN_FAKE_VIDEO_DECODER="$<TARGET_FILE:tern-fake-video-decoder>")
endif()
