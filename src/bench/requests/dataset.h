// Requests for benchmarks: read from a file, or made of random token ids (fastdeploy.md 11.5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::content {
class Tokenizer;
}

namespace tern::bench {

// One of `messages`, `text` and `ids` is there.
struct Sample {
  json::Array messages;
  std::string text;
  std::vector<int32_t> ids;
  int output_len = 0;   // tokens of the answer; 0: the data set does not say
  json::Object fields;  // further fields of the request
};

// The last message's text, or `text`.
std::string last_text(const Sample& sample);

struct FileOptions {
  std::string name;  // EBChat: JSON lines of {"messages", "max_tokens"}; EB: of texts; sharegpt: conversations
  std::string path;
  int count = 1;
  uint64_t seed = 0;
  bool shuffle = false;
  bool oversample = true;  // draws again where the file has fewer
  int output_len = 0;      // in place of what the file says; 0: none
  // sharegpt: counts the answers' tokens and leaves out what is too short or too long; null: no such counts.
  const content::Tokenizer* tokenizer = nullptr;
};
// Errors: kNotFound, kCorrupt with the number of the line, kInvalidArgument for a file without requests.
Expected<std::vector<Sample>> read_samples(const FileOptions& options);

struct RandomOptions {
  int count = 1;
  int input_len = 1, output_len = 1, prefix_len = 0;  // the first prefix_len tokens are the same in all
  double range_ratio = 0;                             // lengths vary by this share
  int least_id = 0, vocab = 1;                        // ids from least_id to below vocab
  uint64_t seed = 0;
};
// The same for the same options, whatever `count` is.
Sample random_sample(const RandomOptions& options, int index);

}  // namespace tern::bench
