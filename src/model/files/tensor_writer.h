// Writes one safetensors file, tensor after tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/files/safetensors.h"

namespace tern::model {

struct TensorToWrite {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<int64_t> shape;
  size_t bytes() const;
};

class TensorWriter {
 public:
  TensorWriter() = default;
  ~TensorWriter();
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  // A new file whose tensors lie one after the other in this order.
  Status open(const std::string& path, const std::vector<TensorToWrite>& tensors);
  Status write(const void* data, size_t bytes);
  // kInternal unless all was written that was announced; what was written is on the disk afterwards.
  Status close();

 private:
  Error failed(const char* what) const;

  std::string path_;
  int file_ = -1;
  size_t left_ = 0;
};

}  // namespace tern::model
