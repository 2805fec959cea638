// Which tokenizer a folder holds, and loading it through textkit.
#pragma once

#include <string>

#include "base/error.h"
#include "content/text/textkit_handle.h"
#include "content/text/tokenizer.h"
#include "content/text/tokenizer_config.h"

namespace tern::content {

struct LoadedTokenizer {
  TkTokenizer handle;
  std::string kind;
};

// May complete `config`: a bare SentencePiece or tiktoken file names its own special tokens.
Expected<LoadedTokenizer> load_tokenizer_files(const std::string& dir, const TokenizerOptions& options,
                                               TokenizerConfig& config);

}  // namespace tern::content
