#include "model/tests/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/files/safetensors.h"

namespace tern::model::testing {
namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "tern-test-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
TempFolder::~TempFolder() {
  std::error_code ec;
  fs::remove_all(path_, ec);
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TestTensors read_tensors(const std::string& path) {
  const std::string file = read_file(path);
  const auto header = parse_safetensors(file, file.size());
  TestTensors out;
  if (!header.ok()) return ADD_FAILURE() << header.error().message, out;
  for (const auto& [name, e] : header->tensors)
    out[name] = {file_type_name(e.dtype), e.shape, file.substr(e.begin, e.end - e.begin)};
  return out;
}

std::string raw_safetensors(const std::string& header, size_t data_bytes) {
  const uint64_t n = header.size();
  std::string out(reinterpret_cast<const char*>(&n), sizeof n);
  out += header;
  out.append(data_bytes, '\0');
  return out;
}

void write_tensors(const std::string& path, const TestTensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, t] : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", name, t.dtype, fmt::join(t.shape, ","), data.size(),
                          data.size() + t.bytes.size());
    data += t.bytes;
  }
  write_file(path, raw_safetensors(header + "}", 0) + data);
}

TestTensor transposed(const TestTensor& t) {
  const auto a = static_cast<size_t>(t.shape[0]), b = static_cast<size_t>(t.shape[1]), size = t.bytes.size() / (a * b);
  TestTensor out{t.dtype, {t.shape[1], t.shape[0]}, std::string(t.bytes.size(), '\0')};
  for (size_t i = 0; i < a; ++i)
    for (size_t j = 0; j < b; ++j) std::memcpy(&out.bytes[(j * a + i) * size], &t.bytes[(i * b + j) * size], size);
  return out;
}

device::Device& cpu() {
  static auto device = device::make_cpu_device({.threads = 2, .pin = false});
  return **device;
}

}  // namespace tern::model::testing
