// Files and tables of the video tests.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "image/codecs/decode.h"
#include "video/video.h"

namespace tern::video {

inline std::filesystem::path data_dir() { return std::filesystem::path(TERN_SOURCE_DIR) / "tests/data/video"; }
inline std::filesystem::path shared_dir() {
  const char* named = std::getenv("TERN_SHARED_DATA");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path(TERN_SOURCE_DIR) / "../shared";
}

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

inline Expected<image::Image> read_picture(const std::filesystem::path& path) {
  const auto file = read_file(path);
  TERN_ASSIGN_OR_RETURN(auto image,
                        image::decode_image({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, {}));
  return image::convert_rgb(std::move(image));
}

using Row = std::vector<std::string>;
inline std::vector<Row> read_table(const std::string& kind) {
  std::ifstream in(data_dir() / "cases.tsv");
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    Row row;
    for (std::string field; std::getline(fields, field, '\t');) row.push_back(field);
    if (!row.empty() && row[0] == kind) rows.push_back(row);
  }
  return rows;
}

inline std::string font_file() { return find_font("/nonexistent"); }

// Every frame of a video of `frames` frames.
inline SamplingRule all_frames(int frames) {
  SamplingRule rule;
  rule.fps = -1;
  rule.target_frames = frames;
  return rule;
}

inline VideoOptions plain_options() {
  VideoOptions options;
  options.helper = TERN_VIDEO_DECODER;
  options.pair = false;
  options.limits.wall_seconds = 20;
  return options;
}

}  // namespace tern::video
