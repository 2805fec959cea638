#include "model/verify/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/files/mapped_file.h"
#include "model/files/safetensors.h"

namespace tern::model {
namespace {

Error bad(const std::string& folder, std::string what) {
  return make_error(ErrorCode::kCorrupt, fmt::format("{}/golden.json: {}", folder, what));
}

bool read_ids(const json::Value* v, std::vector<int32_t>& out) {
  if (v == nullptr || !v->is_array() || v->get_array().size() > (1u << 20)) return false;
  for (const auto& e : v->get_array()) {
    if (!e.is_int64() || e.get_int64() < 0 || e.get_int64() > (1 << 24)) return false;
    out.push_back(static_cast<int32_t>(e.get_int64()));
  }
  return true;
}

// Names of files in the case's own folder.
bool read_files(const json::Value* v, std::vector<std::string>& out) {
  if (v == nullptr) return true;
  if (!v->is_array() || v->get_array().size() > 1000) return false;
  for (const auto& e : v->get_array()) {
    if (!e.is_string() || e.get_string().empty() ||
        std::string_view(e.get_string()).find('/') != std::string_view::npos)
      return false;
    out.emplace_back(e.get_string());
  }
  return true;
}

bool read_prompt(const json::Value& v, GoldenPrompt& p) {
  if (!v.is_object()) return false;
  const json::Object& o = v.get_object();
  if (!read_ids(json::find(o, "input_ids"), p.ids) || p.ids.empty()) return false;
  if (!read_files(json::find(o, "images"), p.images) || !read_files(json::find(o, "frames"), p.frames)) return false;
  const auto delta = json::get_int(o, "rope_delta");
  if (!delta.ok()) return false;
  p.rope_delta = static_cast<int>(delta->value_or(0));
  if (json::find(o, "greedy") == nullptr) return true;
  if (!read_ids(json::find(o, "greedy"), p.greedy)) return false;
  const json::Value* margins = json::find(o, "margins");
  if (margins == nullptr || !margins->is_array() || margins->get_array().size() != p.greedy.size()) return false;
  for (const auto& m : margins->get_array()) {
    if (!m.is_number()) return false;
    p.margins.push_back(m.is_double() ? m.get_double() : m.to_number<double>());
  }
  return true;
}

Status read_json(GoldenCase& c) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, json::parse_file(c.folder + "/golden.json"));
  if (!root.is_object()) return bad(c.folder, "not an object");
  const json::Object& o = root.get_object();
  TERN_ASSIGN_OR_RETURN(const auto kind, json::get_string(o, "kind"));
  c.kind = kind.value_or("text");
  const json::Value* prompts = json::find(o, "prompts");
  if (prompts == nullptr || !prompts->is_object()) return bad(c.folder, "there are no prompts");
  for (const auto& [name, value] : prompts->get_object()) {
    GoldenPrompt p;
    p.name = std::string(name);
    if (!read_prompt(value, p)) return bad(c.folder, fmt::format("prompt {} is malformed", p.name));
    c.prompts.push_back(std::move(p));
  }
  if (json::find(o, "greedy_banned_ids") != nullptr && !read_ids(json::find(o, "greedy_banned_ids"), c.banned))
    return bad(c.folder, "greedy_banned_ids is malformed");
  if (const json::Value* options = json::find(o, "reference_options"); options != nullptr && options->is_object())
    c.reference_options = options->get_object();
  if (const json::Value* processor = json::find(o, "processor"); processor != nullptr && processor->is_object())
    c.processor = processor->get_object();
  return {};
}

}  // namespace

double GoldenTensor::max_abs() const {
  double m = 0.0;
  for (float v : values) m = std::max(m, std::fabs(static_cast<double>(v)));
  return m;
}

const GoldenTensor* GoldenCase::find(const std::string& name) const {
  const auto it = tensors.find(name);
  return it == tensors.end() ? nullptr : &it->second;
}

Expected<GoldenCase> read_golden_case(const std::string& folder) {
  GoldenCase c;
  c.folder = folder;
  TERN_RETURN_IF_ERROR(read_json(c));
  TERN_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(folder + "/golden.safetensors"));
  TERN_ASSIGN_OR_RETURN(const SafetensorsHeader header, parse_safetensors({file.data(), file.size()}, file.size()));
  for (const auto& [name, entry] : header.tensors) {
    if (entry.dtype == FileType::kI64) {
      std::vector<int64_t>& values = c.integers[name];
      values.resize((entry.end - entry.begin) / sizeof(int64_t));
      std::memcpy(values.data(), file.data() + entry.begin, entry.end - entry.begin);
    }
    if (entry.dtype != FileType::kF32) continue;
    GoldenTensor t{entry.shape, std::vector<float>((entry.end - entry.begin) / sizeof(float))};
    std::memcpy(t.values.data(), file.data() + entry.begin, entry.end - entry.begin);
    c.tensors.emplace(name, std::move(t));
  }
  TERN_RETURN_IF_ERROR(file.check());
  return c;
}

}  // namespace tern::model
