// What is installed beside this program: compilers, Python and its packages, as the programs themselves say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tern::cli {

// What a program on PATH prints on its standard output within `seconds`, at most 1 MiB; "" where there is no such
// program or it fails.
std::string output_of(const std::vector<std::string>& command, int seconds);

// The first line of a text, without what stands before `from` where that is in it.
std::string first_line(std::string_view text, std::string_view from = {});

struct PythonFacts {
  std::string version, platform;
  std::vector<std::string> packages;  // "name==version" of those that matter here, sorted
};
PythonFacts python_facts();

}  // namespace tern::cli
