// The files of a repository, as a hub lists them, and which of them this program uses. Bytes from outside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::app {

enum class HubHash {
  kNone,             // not told yet (Hugging Face tells it file by file)
  kSha256,           // of the content
  kGitBlob,          // SHA-1 of "blob SIZE\0" and the content
  kGitBlobOrPointer  // the same of the content, or of the pointer that Git LFS keeps in its place
};

struct HubFile {
  std::string path;   // a plain relative path
  int64_t size = -1;  // bytes; -1: not told yet
  HubHash hash = HubHash::kNone;
  std::string digest;      // lower-case hex
  int64_t blob_size = -1;  // kGitBlobOrPointer: of the blob, which may be the pointer
};

struct HubListing {
  std::string commit;  // what the revision is at this moment; "": the hub does not tell
  std::vector<HubFile> files;
};

bool is_hex(std::string_view text, size_t digits);  // lower case
// The text that Git LFS keeps in place of a file, and sizes between which its own lies.
inline constexpr int64_t kLeastPointerBytes = 100, kMostPointerBytes = 200;
std::string lfs_pointer(std::string_view sha256, int64_t size);

// Adds a file, unless it is in a folder of the repository. Errors (kCorrupt): a path that leads out of the folder it is
// put into, a path twice, too many files.
Status add_file(HubListing& listing, HubFile file);
// Keeps what this program reads: configuration, tokenizer, templates, safetensors; no pickles, no Python. Errors
// (kUnsupported): no config.json, no weights in safetensors.
Status keep_used_files(HubListing& listing);

}  // namespace tern::app
