// A folder of weights: one safetensors file, or an index and its shards, mapped and checked.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/files/mapped_file.h"
#include "model/files/safetensors.h"

namespace tern::model {

struct StoredTensor {
  const MappedFile* file = nullptr;
  const char* data = nullptr;  // may be misaligned for its type
  FileType dtype = FileType::kF32;
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

class Checkpoint {
 public:
  // Takes model.safetensors, else the shards that model.safetensors.index.json names, else every *.safetensors there.
  // An index may name only files inside the folder (which may be links); a tensor stored twice is an error.
  static Expected<Checkpoint> open(const std::string& folder);

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  size_t bytes() const { return bytes_; }
  std::vector<std::string> paths() const;
  Status check() const;  // of all files, see MappedFile::check

 private:
  Status add_file(const std::string& path, const std::map<std::string, std::string, std::less<>>* weight_map,
                  const std::string& file_name);

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  size_t bytes_ = 0;
};

// True when `folder` holds weights that open() would take.
bool has_weights(const std::string& folder);

}  // namespace tern::model
