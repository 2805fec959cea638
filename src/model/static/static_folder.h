// A folder that PaddleNLP exported for its static engine: a program and its parameters for every rank
// (paddlenlp-server.md 7.1). Nothing of a program is run; it gives names, types and shapes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"
#include "model/files/checkpoint.h"
#include "model/paddle/program.h"
#include "model/static/static_names.h"

namespace tern::model {

// One parameter of all ranks, which have it in one type and shape.
struct StaticParameter {
  std::vector<StoredTensor> ranks;
  ProgramParameter uses;  // as rank 0's program uses it
  const std::vector<int64_t>& dims() const { return ranks.front().shape; }
  FileType type() const { return ranks.front().dtype; }
};

struct StaticFolder {
  // Errors name the file: programs and parameters that do not fit each other or another rank's, a missing rank, a
  // family or parameters that are not read. `config`: the folder's config.json.
  static Expected<StaticFolder> open(const std::string& folder, const json::Object& config);

  int ranks() const { return static_cast<int>(parameters.begin()->second.ranks.size()); }
  // "fuse<family>.<layer>.<leaf>"; null: there is none.
  const StaticParameter* find(int layer, std::string_view leaf) const;
  Status check() const;  // of all files, see MappedFile::check

  StaticNames names;
  std::map<std::string, StaticParameter, std::less<>> parameters;
  std::optional<int64_t> arch;  // of weight-only codes
  std::vector<std::unique_ptr<MappedFile>> files;
};

// Whether the folder holds such an export and no model*.safetensors, which would be used instead.
bool has_static_weights(const std::string& folder);

}  // namespace tern::model
