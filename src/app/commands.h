// The commands of `tern`. Each takes what follows its name and gives the exit status.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace tern::app {

inline constexpr int kFailureExit = 1;  // it could not be done
inline constexpr int kUsageExit = 2;    // what was asked is wrong

int run_serve(const std::vector<std::string>& args);
int run_chat(const std::vector<std::string>& args);
int run_bench(const std::vector<std::string>& args);
int run_tokenize(const std::vector<std::string>& args);
int run_render(const std::vector<std::string>& args);
int run_verify(const std::vector<std::string>& args);
int run_ocr(const std::vector<std::string>& args);
int run_preprocess(const std::vector<std::string>& args);
int run_inspect(const std::vector<std::string>& args);

// "tern: MESSAGE" on stderr, as one line; gives kUsageExit for kInvalidArgument and kUnsupported flags, else
// kFailureExit.
int report(const Error& error);

}  // namespace tern::app
