// The files of a static export. The first byte chooses: a model.pdiparams, a model.json, a model.pdmodel. What passes
// the checks lies inside the file, one behind the other, and fills its shape; names are sorted and single.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/paddle/params_file.h"
#include "model/paddle/program.h"
#include "model/static/static_names.h"

namespace {

using namespace tern::model;

void check_params(std::string_view file) {
  const auto read = parse_pdiparams(file);
  if (!read.ok()) return;
  uint64_t at = 0;
  for (const StoredParameter& p : *read) {
    uint64_t bytes = file_type_bytes(p.tensor.type);
    for (const int64_t d : p.tensor.dims) bytes *= static_cast<uint64_t>(d);
    if (p.begin < at || p.end > file.size() || p.end - p.begin != bytes) std::abort();
    at = p.end;
  }
  if (at != file.size() && !read->empty()) std::abort();
}

void check_program(const tern::Expected<StaticProgram>& read) {
  if (!read.ok()) return;
  if (read->parameters.empty()) std::abort();
  for (size_t i = 0; i < read->parameters.size(); ++i) {
    const ProgramParameter& p = read->parameters[i];
    if (p.name.empty() || (i > 0 && p.name <= read->parameters[i - 1].name)) std::abort();
    for (const int64_t d : p.tensor.dims)
      if (d < 0) std::abort();
    if (const auto name = split_fused_name(p.name); name && name->layer < 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      check_params(file);
      break;
    case 1:
      check_program(parse_pir_program(file));
      break;
    default:
      check_program(parse_program_desc(file));
      break;
  }
  return 0;
}
