// Shared by the tests of this room: files, tables, and the folder of real pictures.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/cpu_isa.h"

namespace tern::image {

inline std::filesystem::path data_dir() { return std::filesystem::path(TERN_SOURCE_DIR) / "tests/data/media"; }

// The folder of real pictures; may not exist.
inline std::filesystem::path shared_dir() {
  const char* named = std::getenv("TERN_SHARED_DATA");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(TERN_SOURCE_DIR).parent_path() / "shared";
}

inline std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Row = std::vector<std::string>;

// Rows of a table whose first column is `kind`.
inline std::vector<Row> read_table(const std::filesystem::path& path, const std::string& kind) {
  std::vector<Row> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    Row row;
    std::stringstream stream(line);
    for (std::string cell; std::getline(stream, cell, '\t');) row.push_back(cell);
    if (row[0] == kind) rows.push_back(row);
  }
  return rows;
}

inline std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= detect_isa()) all.push_back(isa);
  }
  return all;
}

}  // namespace tern::image
