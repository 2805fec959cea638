// Result rows of the programs in this folder: one JSON object a line, into the file that TERN_RESULTS names
// (tools/bench.sh sets it and what each row says of machine and commit). The fields: tools/gpu_check/rows.py.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "json/json.h"

namespace tern {

struct ResultRow {
  std::string what, command;
  double measured = 0;
  std::string unit;
  std::string reference;  // a ceiling or a peer of the same run; "": none
  double reference_value = 0;
  std::string reference_unit;
  double ratio = 0;
};

inline void add_result(const ResultRow& row) {
  const char* path = std::getenv("TERN_RESULTS");
  if (path == nullptr || *path == '\0') return;
  json::Object out;
  for (const auto& [key, name] : {std::pair("machine", "TERN_RESULTS_MACHINE"),
                                  std::pair("commit", "TERN_RESULTS_COMMIT"), std::pair("date", "TERN_RESULTS_DATE")}) {
    const char* value = std::getenv(name);
    if (value == nullptr) {
      std::fprintf(stderr, "TERN_RESULTS needs %s: tools/gpu_check/rows.py env\n", name);
      std::exit(2);
    }
    out[key] = value;
  }
  out["what"] = row.what, out["command"] = row.command, out["measured"] = row.measured, out["unit"] = row.unit;
  if (!row.reference.empty()) {
    out["reference"] = row.reference;
    out["reference_value"] = row.reference_value, out["reference_unit"] = row.reference_unit;
    out["ratio"] = row.ratio;
  }
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr || std::fputs((json::dump(out) + "\n").c_str(), file) < 0 || std::fclose(file) != 0) {
    std::perror(path);
    std::exit(2);
  }
}

}  // namespace tern
