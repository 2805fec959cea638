// file_list.txt of a static model: what belongs to it, with sums (paddlenlp-server.md 5.4). Bytes from outside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::app {

struct ListedFile {
  std::string path;  // relative, without "." and ".." and without empty parts
  std::string md5;   // 32 lower-case digits
};

// One "path:md5" per line, cut at the last colon; blank lines count for nothing. Errors: kCorrupt with the line's
// number: a path that leads out of the folder or is no plain path, a bad sum, a path twice, too many lines.
Expected<std::vector<ListedFile>> parse_file_list(std::string_view text);

// Static models that are published: the name's family, and a relative path. Errors: kInvalidArgument.
Status check_model_name(const std::string& name);

}  // namespace tern::app
