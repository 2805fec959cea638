#include "model/files/check_sums.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "model/files/checkpoint.h"
#include "model/files/mapped_file.h"

namespace tern::model {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // of the list

Error wrong(std::string message) { return make_error(ErrorCode::kCorrupt, std::move(message), "verify_checksum"); }

}  // namespace

Expected<std::map<std::string, std::string>> parse_sums(std::string_view text) {
  std::map<std::string, std::string> sums;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string_view sum = line.substr(0, 64);
    const bool digits = sum.size() == 64 && sum.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (!digits || line.size() < 67 || line[64] != ' ' || (line[65] != ' ' && line[65] != '*')) {
      return wrong("SHA256SUMS has a line that is not one of sha256sum");
    }
    std::string_view name = line.substr(66);
    if (name.starts_with("./")) name.remove_prefix(2);
    if (name.empty()) return wrong("SHA256SUMS has a line without a name");
    sums[std::string(name)] = std::string(sum);
  }
  return sums;
}

Status verify_sums(const std::string& folder) {
  TERN_ASSIGN_OR_RETURN(const MappedFile list, MappedFile::open(folder + "/SHA256SUMS"));
  if (list.size() > kMostBytes) return wrong("SHA256SUMS is too long");
  TERN_ASSIGN_OR_RETURN(const auto sums, parse_sums({list.data(), list.size()}));
  TERN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  for (const std::string& path : checkpoint.paths()) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const auto sum = sums.find(name);
    if (sum == sums.end()) return wrong(fmt::format("SHA256SUMS does not name {}", name));
    TERN_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    const std::string found = sha256_hex(file.data(), file.size());
    TERN_RETURN_IF_ERROR(file.check());
    if (found != sum->second) return wrong(fmt::format("{} has not the sum that SHA256SUMS names", name));
  }
  return {};
}

}  // namespace tern::model
