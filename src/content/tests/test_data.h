// Where test data lies.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "json/json.h"

namespace tern::content {

inline std::string own_data(const std::string& name) { return std::string(TERN_SOURCE_DIR) + "/tests/data/" + name; }

// The folder of real tokenizers and templates that is not part of the repository; "" when it is not there.
inline std::string shared_data() {
  const char* set = std::getenv("TERN_SHARED_DATA");
  const std::string root = set ? std::string(set) : std::string(TERN_SOURCE_DIR) + "/../shared";
  const std::string data = root + "/data";
  return std::filesystem::is_directory(data) ? data : std::string();
}

#define TERN_NEED_SHARED_DATA()                                                                            \
  do {                                                                                                     \
    if (shared_data().empty()) GTEST_SKIP() << "no shared test data (set TERN_SHARED_DATA to its folder)"; \
  } while (false)

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline json::Value load_json(const std::string& path) {
  auto value = json::parse_file(path);
  EXPECT_TRUE(value.ok()) << (value.ok() ? "" : value.error().message);
  return value.ok() ? std::move(value).value() : json::Value();
}

// A folder that goes away with the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "tern-content-XXXXXX").string();
    path_ = mkdtemp(name.data()) ? name : "";
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

}  // namespace tern::content
