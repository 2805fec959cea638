// Writes a model folder that appears when all of it is on the disk.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"
#include "model/files/tensor_writer.h"

namespace tern::model {

struct FolderWriterOptions {
  std::string out;                    // must not be there, or be empty
  size_t file_bytes = 4'000'000'000;  // of one file of weights, about
  // Asked between blocks of weights; true ends the work with an error.
  std::function<bool()> stop;
  std::function<void(size_t, size_t)> progress;  // bytes of weights written and in all
};

// A folder beside the one that is to be, which gets its name in commit() and disappears otherwise.
class FolderWriter {
 public:
  explicit FolderWriter(const FolderWriterOptions& options) : options_(options) {}
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  Status make();
  // All weights, in this order, cut into files. `joined(i)`: tensor i lies in the file of the one before it.
  // `write(i)` puts the bytes of tensor i.
  Status weights(const std::vector<TensorToWrite>& tensors, const std::function<bool(size_t)>& joined,
                 const std::function<Status(size_t)>& write);
  Status put(const void* data, size_t bytes);
  Status text_file(const std::string& name, const std::string& text);
  // Tokenizer, templates and whatever else of a folder is neither config.json nor weights, nor named in `but`.
  Status other_files(const std::string& folder, const std::vector<std::string>& but = {});
  Status commit();

 private:
  Status one_file(const std::string& name, const std::vector<TensorToWrite>& tensors, size_t begin, size_t end,
                  const std::function<Status(size_t)>& write);

  const FolderWriterOptions& options_;
  std::string out_, path_;
  TensorWriter* writer_ = nullptr;  // of the file being written
  size_t done_ = 0, total_ = 0;
};

}  // namespace tern::model
