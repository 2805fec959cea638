// The list of a static model's files: it is refused, or every path stays below the folder it is put into.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "app/download/file_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)tern::app::check_model_name(std::string(text)).ok();
  const auto files = tern::app::parse_file_list(text);
  if (!files.ok()) return 0;
  for (const auto& file : *files) {
    if (file.md5.size() != 32 || file.path.empty() || file.path.front() == '/') std::abort();
    if (("/" + file.path + "/").find("/../") != std::string::npos) std::abort();
  }
  return 0;
}
