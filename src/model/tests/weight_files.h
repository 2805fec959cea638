// Folders and files of weights made for tests, here and in the rooms above.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace tern::model::testing {

// A folder below the system's temporary one, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_file(const std::string& path, std::string_view text);
std::string read_file(const std::string& path);

struct TestTensor {
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

TestTensors read_tensors(const std::string& path);
void write_tensors(const std::string& path, const TestTensors& tensors);
// A safetensors file with any header at all.
std::string raw_safetensors(const std::string& header, size_t data_bytes);
TestTensor transposed(const TestTensor& t);  // [a, b] to [b, a]

device::Device& cpu();  // two threads

}  // namespace tern::model::testing
